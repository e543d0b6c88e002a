"""The first token that a causal language model would generate after a prompt, which is a classifier's verdict.

The probability of a word (yes or no, a digit) is that of all tokens that read as the word, and the verdict is the word that
the most likely token reads as; if that reads as no word, there is no verdict. Prompts share a padded batch only where such
batches agreed with whole passes of the model (`lethe.models.agreement`).
"""

from __future__ import annotations

import importlib.util
import inspect
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from lethe.errors import BadFile, BadInput, LetheError
from lethe.models import checkpoints
from lethe.models.agreement import ROOM, Read, rows_of_batch
from lethe.models.encoding import context_of

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from vllm import LLM

Engine = Literal["transformers", "vllm"]
# What begins or ends a part of a chat in the formats of known classifiers. A generation that holds such a mark could
# speak for the classifier.
MARKS = ("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<s>", "</s>")
# What every use of vLLM shares: its environment and its context on the CPU.
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
}
LONGEST_ON_CPU = 4096  # tokens of prompt and answer
VLLM_TOKENS = 64  # vLLM returns this many of the most likely tokens; the others count as impossible


# (prompts, words) probabilities of the words, and the index of the most likely token's word, -1 for none
FirstTokens = tuple[np.ndarray, np.ndarray]


class FirstToken:
    """Reads verdicts.

    Parameters
    ----------
    folder
        The folder of the classifier.
    words
        The words of a verdict.
    engine
        What runs it.
    dtype
        The number format of the weights; "auto": the checkpoint's.
    room
        The largest number of tokens of a prompt with its verdict, for which vLLM must find memory; None stands for the
        model's whole context.

    Attributes
    ----------
    ids
        The tokens that read as each word.
    rows
        How many prompts share a batch: None for all, 1 where padded batches are wrong.

    Raises
    ------
    BadFile
        If no single token reads as one of the words.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        words: Sequence[str],
        engine: Engine = "transformers",
        dtype: str = "auto",
        room: int | None = None,
    ):
        self.folder = checkpoints.check(folder)
        self.vllm: LLM | None = None
        if engine == "vllm":
            self.tokenizer = checkpoints.load_tokenizer(self.folder)
            self.vllm, self.context = self._started(dtype, room)
        else:
            self.model, self.tokenizer = checkpoints.load(self.folder, dtype)
            self.context = context_of(self.model.config)
            taken = inspect.signature(self.model.forward).parameters
            self.one_logit = {"logits_to_keep": 1} if "logits_to_keep" in taken else {}
            self.takes_positions = "position_ids" in taken
        self.ids = [reading(self.tokenizer, word) for word in words]
        for word, ids in zip(words, self.ids, strict=True):
            if not ids:
                raise BadFile(
                    self.folder,
                    f"its tokenizer has no single token that reads {word!r}, which a verdict begins with",
                    "Name a checkpoint that was trained to answer with this word.",
                )

        # Whether prompts may share a batch.
        config = checkpoints.load_config(checkpoints.whole(self.folder))
        vocabulary = int(config.get_text_config().vocab_size)
        read: Read
        whole: PreTrainedModel | None
        if self.vllm is None:
            read, whole = self._all_shares, self.model
        else:
            read = partial(self._stated_shares, vocabulary)
            dtype = str(self.vllm.model_config.dtype).removeprefix("torch.")
            whole = checkpoints.second_copy(self.folder, dtype)
        self.rows = rows_of_batch(read, whole, self.folder, vocabulary, self.context)

    def _started(self, dtype: str, room: int | None) -> tuple[LLM, int | None]:
        """vLLM with the classifier, and the tokens that it reads at most."""
        prepare_vllm("transformers")
        import torch

        folder = checkpoints.whole(self.folder)
        on_cpu = not torch.cuda.is_available()
        if room is not None:
            room = max(room, ROOM)
        context = context_in_vllm(context_of(checkpoints.load_config(folder)), on_cpu, room)
        llm = start_vllm(folder, dtype, context, on_cpu, alone=True, max_logprobs=VLLM_TOKENS)
        return llm, context

    def read(self, prompts: Sequence[Sequence[int]]) -> FirstTokens:
        """Read the first token after each prompt, given as token ids.

        Raises
        ------
        BadInput
            If a prompt is longer than the model's context.
        """
        longest = max(map(len, prompts))
        most = self.context
        if most is not None and self.vllm is not None:  # it generates the verdict's token
            most -= 1
        if most is not None and longest > most:
            raise BadInput(
                f"The judge {self.folder} reads at most {most} tokens, but a prompt has {longest}: name a "
                "checkpoint with a longer context, or clip the generation more."
            )

        read = self._by_vllm if self.vllm else self._by_transformers
        size = self.rows or len(prompts)
        batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
        shares, words = zip(*map(read, batches), strict=True)
        return np.concatenate(shares), np.concatenate(words)

    def _by_transformers(self, prompts: Sequence[Sequence[int]]) -> FirstTokens:
        """The verdicts of one batch, from the probabilities of all tokens."""
        import torch

        shares = self._shares(prompts)
        top = shares.argmax(-1).cpu().tolist()
        words = torch.stack([shares[:, ids].sum(-1) for ids in self.ids], dim=1)
        return words.double().cpu().numpy(), self._words_of(top)

    def _all_shares(self, prompts: Sequence[Sequence[int]]) -> np.ndarray:
        """(prompts, V) the probabilities of the first token, float64."""
        return self._shares(prompts).double().cpu().numpy()

    def _shares(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """(prompts, V) the probabilities of the first token, float32."""
        import torch

        width = max(map(len, prompts))
        device = self.model.device

        # Padded on the left, so that the last position holds every prompt's last token.
        ids = torch.zeros((len(prompts), width), dtype=torch.long)
        mask = torch.zeros((len(prompts), width), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1

        more: dict[str, object] = dict(self.one_logit)
        if self.takes_positions:
            more["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0).to(device)
        with torch.inference_mode():
            logits = self.model(
                input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False, **more
            )
            return logits.logits[:, -1].float().softmax(-1)

    def _by_vllm(self, prompts: Sequence[Sequence[int]]) -> FirstTokens:
        """The verdicts of one batch, from the probabilities that vLLM states; a token beyond them counts as impossible."""
        shares = np.zeros((len(prompts), len(self.ids)))
        top = []
        for row, likeliest in enumerate(self._stated(prompts)):
            for column, ids in enumerate(self.ids):
                shares[row, column] = sum(likeliest.get(token, 0.0) for token in ids)
            top.append(max(likeliest, key=likeliest.__getitem__))
        return shares, self._words_of(top)

    def _stated_shares(self, vocabulary: int, prompts: Sequence[Sequence[int]]) -> np.ndarray:
        """(prompts, V) the probabilities that vLLM states, NaN for the others."""
        shares = np.full((len(prompts), vocabulary), np.nan)
        for row, likeliest in enumerate(self._stated(prompts)):
            shares[row, list(likeliest)] = list(likeliest.values())
        return shares

    def _stated(self, prompts: Sequence[Sequence[int]]) -> list[dict[int, float]]:
        """The probabilities of the most likely first tokens after each prompt."""
        from vllm import SamplingParams, TokensPrompt

        assert self.vllm is not None
        tokens = [TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts]
        params = SamplingParams(temperature=0, max_tokens=1, logprobs=VLLM_TOKENS, detokenize=False)
        stated = []
        for output in self.vllm.generate(tokens, params, use_tqdm=False):
            shares = {}
            for token, entry in output.outputs[0].logprobs[0].items():
                shares[token] = float(np.exp(entry.logprob))
            stated.append(shares)
        return stated

    def _words_of(self, top: Sequence[int]) -> np.ndarray:
        """The index of the word that each token reads as, -1 for none."""
        word_of_token: dict[int, int] = {}
        for word, ids in enumerate(self.ids):
            word_of_token |= dict.fromkeys(ids, word)
        return np.array([word_of_token.get(token, -1) for token in top])


def reading(tokenizer: PreTrainedTokenizerBase, word: str) -> list[int]:
    """The tokens that read as a word: its spellings in any case, with and without a leading space."""
    word = word.casefold()
    tokens = []
    for text, token in tokenizer.get_vocab().items():
        # Decoding the whole vocabulary would take seconds.
        if word in text.casefold() and str(tokenizer.decode([token])).strip().casefold() == word:
            tokens.append(token)
    return sorted(tokens)


def neutral(text: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """The text with every mark of a chat format broken by a space, so that no mark begins or ends a part of a prompt."""
    for mark in sorted({*MARKS, *tokenizer.all_special_tokens}, key=len, reverse=True):
        if len(mark) > 1:
            text = text.replace(mark, f"{mark[0]} {mark[1:]}")
    return text


def clipped(text: str, tokenizer: PreTrainedTokenizerBase, tokens: int) -> str:
    """The text, up to so many tokens of it."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) <= tokens:
        return text
    return str(tokenizer.decode(ids[:tokens]))


def prepare_vllm(instead: str, **more: str) -> None:
    """Set what vLLM reads of the environment, unless the user set it; raises `LetheError` where vLLM is missing."""
    if importlib.util.find_spec("vllm") is None:
        raise LetheError(
            f"vLLM is not installed: install the extra gpu or cpu, or use engine: {instead}."
        )
    for name, value in (ENVIRONMENT | more).items():
        os.environ.setdefault(name, value)


def start_vllm(
    folder: Path,
    dtype: str,
    context: int | None,
    on_cpu: bool,
    alone: bool,
    **more: object,
) -> LLM:
    """Start vLLM on a model folder; ``alone``: in this process, which on a CPU saves starting two."""
    from vllm import LLM

    if dtype == "auto":
        dtype = "float32" if on_cpu else _stored_format(folder)
    if on_cpu:
        more["enforce_eager"] = True
    if on_cpu and alone:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        more["distributed_executor_backend"] = "uni"
    return LLM(
        model=str(folder),
        dtype=dtype,
        load_format="safetensors",
        trust_remote_code=False,
        max_model_len=context,
        enable_prefix_caching=True,
        disable_log_stats=True,
        **more,
    )


def _stored_format(folder: Path) -> str:
    """The number format that the checkpoint names, as transformers takes it; vLLM's own "auto" halves a float32 model."""
    named = checkpoints.load_config(folder).dtype
    return "auto" if named is None else str(named).removeprefix("torch.")


def context_in_vllm(context: int | None, on_cpu: bool, room: int | None) -> int | None:
    """The context with which vLLM runs a model: at most ``room``, and on a CPU at most `LONGEST_ON_CPU`."""
    limits = [context, room, LONGEST_ON_CPU if on_cpu else None]
    return min((limit for limit in limits if limit is not None), default=None)
