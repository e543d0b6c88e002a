"""One pass of a model: the likelihood of given answers, token by token and without sampling, and the states of a block.

The table of a split has one row per answer, right, paraphrased or wrong: ``prompt_id``, ``kind`` (answer, paraphrased or
perturbed), ``number`` (of the wrong answer, else 0), and the lists of `AnswerTokens`. No later step needs the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadInput
from lethe.io.artifacts import Row
from lethe.models.agreement import rows_of_batch
from lethe.models.checkpoints import Source, opened
from lethe.models.encoding import IGNORED, Encoder, Example, TokenBatch, collate, context_of
from lethe.progress import progress

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class AnswerTokens:
    """One answer under a model; arrays of shape (T,), one value per answer token, the end-of-sequence token included.
    ``log_probs``: ln p of the token given all earlier tokens, in nats. ``expected`` and ``spread``: mean and standard
    deviation of ln p(v) over v ~ p at that position, with which min-k%++ standardises. ``greedy``: whether the token is
    the most likely one. The arrays are empty (missing) if question and answer exceed the model's context."""

    log_probs: np.ndarray
    expected: np.ndarray
    spread: np.ndarray
    greedy: np.ndarray

    @property
    def nll(self) -> float:
        """Mean negative log-likelihood per token, in nats: l in the definitions of TOFU; NaN without tokens."""
        return float(-self.log_probs.mean()) if len(self.log_probs) else float("nan")

    @property
    def standardised(self) -> np.ndarray:
        """(T,) the log-probabilities standardised by the vocabulary, as in min-k%++.

        Where the model is certain, the spread is 0 and ln p of the token equals its expectation: the value is 0.
        """
        excess = self.log_probs - self.expected
        return np.divide(excess, self.spread, out=np.zeros_like(excess), where=self.spread > 0)


TOKENS = tuple(field.name for field in fields(AnswerTokens))


def given_answers(
    source: Source, splits: Mapping[str, Sequence[Row]], prompt: str, label: str
) -> dict[str, pd.DataFrame]:
    """The tables of all splits, by name; ``label`` names the work in progress.

    Raises
    ------
    BadFile
        If the tokenizer makes tokens that the weights do not cover.
    """
    import pandas as pd
    import torch

    model, tokenizer = opened(source)
    encoder = Encoder(tokenizer, prompt)
    tables = {}
    padding = tokenizer.pad_token_id or 0
    for split, rows in splits.items():
        answers: list[_GivenAnswer] = []
        for row in rows:
            answers += _answers(row)
        examples = [encoder.example(answer.row, answer.text) for answer in answers]
        tokens = answer_tokens(model, examples, padding, label=f"{label} {split}")
        columns: dict[str, list] = {
            "prompt_id": [answer.row["id"] for answer in answers],
            "kind": [answer.kind for answer in answers],
            "number": [answer.number for answer in answers],
        }
        for name in TOKENS:
            columns[name] = [getattr(of_answer, name) for of_answer in tokens]
        tables[split] = pd.DataFrame(columns)
    del model
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # free the memory for the sampling that follows
    return tables


@dataclass(frozen=True)
class _GivenAnswer:
    """An answer that a row of the dataset gives."""

    row: Row
    kind: str
    number: int
    text: str


def _answers(row: Row) -> Iterator[_GivenAnswer]:
    yield _GivenAnswer(row, "answer", 0, row["answer"])
    paraphrased = row.get("paraphrased_answer")
    if paraphrased:
        yield _GivenAnswer(row, "paraphrased", 0, paraphrased)
    for number, text in enumerate(row.get("perturbed_answer") or ()):
        yield _GivenAnswer(row, "perturbed", number, text)


def answer_tokens(
    model: PreTrainedModel,
    examples: Sequence[Example],
    padding: int,
    size: int = 32,
    label: str = "likelihood",
) -> list[AnswerTokens]:
    """The likelihood of each answer, in the order of the examples, up to ``size`` of them in a batch.

    Raises
    ------
    BadFile
        If an example has a token that the weights do not cover.
    """
    vocabulary = model.config.get_text_config().vocab_size
    largest = 0
    for example in examples:
        largest = max([largest, *example.prompt, *example.answer])
    if largest >= vocabulary:
        raise BadFile(
            str(model.name_or_path),
            f"its tokenizer produced the token {largest}; its weights cover tokens below {vocabulary}",
            "Put this model's own tokenizer into the folder.",
        )
    context = context_of(model.config)
    lengths = np.array([len(example.prompt) + len(example.answer) for example in examples], int)
    # Rows of similar length are batched together for less padding. Ties keep their order, so reruns agree.
    order = np.argsort(lengths, kind="stable")
    if context is not None:
        order = order[lengths[order] <= context]
    if len(order):
        size = _rows_of_batch(model, vocabulary, context, padding) or size
    nothing = AnswerTokens(np.empty(0), np.empty(0), np.empty(0), np.empty(0, dtype=bool))
    results = [nothing] * len(examples)
    groups = [order[start : start + size].tolist() for start in range(0, len(order), size)]
    for group in progress(groups, label, unit="batches"):
        tokens_of_group = _batch(model, [examples[row] for row in group], padding)
        for row, tokens in zip(group, tokens_of_group, strict=True):
            results[row] = tokens
    return results


def _rows_of_batch(
    model: PreTrainedModel, vocabulary: int, context: int | None, padding: int
) -> int | None:
    """How many answers may share a padded batch of this model, as `rows_of_batch` says."""

    def read(prompts: Sequence[tuple[int, ...]]) -> np.ndarray:
        examples = [Example(prompt[:-1], prompt[-1:]) for prompt in prompts]
        logits = _logits(model, collate(examples, padding, model.device))
        last = [row[len(prompt) - 1] for row, prompt in zip(logits, prompts, strict=True)]
        return np.stack([row.double().softmax(-1).cpu().numpy() for row in last])

    source = getattr(model, "name_or_path", "") or "the model"
    return rows_of_batch(read, model, source, vocabulary, context)


def mean_losses(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    rows: Sequence[Row],
    label: str = "losses",
) -> np.ndarray:
    """(N,) the mean negative log-likelihood of each row's answer, in nats per token."""
    encoder = Encoder(tokenizer, prompt)
    examples = [encoder.example(row) for row in rows]
    answers = answer_tokens(model, examples, tokenizer.pad_token_id or 0, label=label)
    for row, tokens in zip(rows, answers, strict=True):
        if not len(tokens.log_probs):
            raise BadInput(
                f"Row {row['id']!r}: question and answer have more tokens than the model's context of "
                f"{context_of(model.config)}, so the loss is undefined. Shorten or remove the row."
            )
    return np.array([tokens.nll for tokens in answers])


def _batch(
    model: PreTrainedModel, examples: Sequence[Example], padding: int
) -> Iterator[AnswerTokens]:
    """The likelihood of each answer of one batch."""
    import torch

    batch = collate(examples, padding, model.device)
    logits = _logits(model, batch)
    with torch.inference_mode():
        for row, labels in zip(logits, batch.labels, strict=True):
            places = (labels != IGNORED).nonzero()[:, 0]
            ids = labels[places]
            log_p = row[places - 1].float().log_softmax(-1)
            p = log_p.exp()
            expected = (p * log_p).sum(-1)
            variance = (p * log_p.square()).sum(-1) - expected.square()
            yield AnswerTokens(
                log_p.gather(-1, ids[:, None])[:, 0].double().cpu().numpy(),
                expected.double().cpu().numpy(),
                # PyTorch approximates the float32 square root, and processors round the approximation differently.
                np.sqrt(variance.clamp_min(0).double().cpu().numpy()),
                (log_p.argmax(-1) == ids).cpu().numpy(),
            )


def _logits(model: PreTrainedModel, batch: TokenBatch) -> torch.Tensor:
    """(B, T, V) without a gradient."""
    import torch

    with torch.inference_mode():
        return model(input_ids=batch.ids, attention_mask=batch.mask).logits


@dataclass(frozen=True)
class Forward:
    """One pass over a batch, with a gradient. ``logits`` (B, T-1, V) predict ``labels`` (B, T-1), which are IGNORED outside
    the answer; ``token_log_probs`` (B, T-1) are 0 there; ``log_probs`` (B,) is S, the answer's summed log-probability;
    ``tokens`` (B,) counts its tokens."""

    logits: torch.Tensor
    labels: torch.Tensor
    token_log_probs: torch.Tensor
    log_probs: torch.Tensor
    tokens: torch.Tensor

    @property
    def nll(self) -> torch.Tensor:
        """The mean negative log-likelihood per answer token of the batch, in nats."""
        return -self.log_probs.sum() / self.tokens.sum()

    @property
    def entropy(self) -> torch.Tensor:
        """The mean over rows of the mean next-token entropy on answer positions, in nats (Scholten, Günnemann and
        Schwinn, "A Probabilistic Perspective on Unlearning and Alignment for Large Language Models", section 5)."""
        return self.entropy_at(self.labels != IGNORED)

    def entropy_at(self, counted: torch.Tensor) -> torch.Tensor:
        """The mean over rows of the mean next-token entropy, in nats, at the positions (B, T-1) that are ``counted``."""
        log_p = self.logits.float().log_softmax(-1)
        entropies = -(log_p.exp() * log_p).sum(-1) * counted
        return (entropies.sum(-1) / counted.sum(-1)).mean()


def forward(model: PreTrainedModel, batch: TokenBatch) -> Forward:
    """Run ``model`` on ``batch``, with logits shifted against labels: position t predicts token t + 1."""
    return from_logits(model(input_ids=batch.ids, attention_mask=batch.mask).logits[:, :-1], batch)


def from_logits(logits: torch.Tensor, batch: TokenBatch) -> Forward:
    """The pass over a batch that gave these logits (B, T-1, V), which predict its tokens from the second on."""
    labels = batch.labels[:, 1:]
    on_answer = labels != IGNORED
    indices = labels.masked_fill(~on_answer, 0)  # IGNORED is not an index into the vocabulary
    picked = logits.float().log_softmax(-1).gather(-1, indices[..., None])[..., 0]
    token_log_probs = picked * on_answer
    return Forward(logits, labels, token_log_probs, token_log_probs.sum(-1), on_answer.sum(-1))


class _Reached(Exception):
    """The block has run, so the rest of the model need not run."""


def number_of_blocks(model: PreTrainedModel, batch: TokenBatch | None = None) -> int:
    """The number of transformer blocks; without a list of blocks, the number of hidden states on ``batch`` counts."""
    layers = _blocks(model)
    if layers is not None:
        return len(layers)
    if batch is None:
        return int(model.config.get_text_config().num_hidden_layers)
    return len(_states(model, batch)) - 1


def block_output(model: PreTrainedModel, batch: TokenBatch, block: int) -> torch.Tensor:
    """(B, T, D) output of one block at each token, with the residual. It comes from the block itself, since the last
    of transformers' hidden states is that of the final norm; without a list of blocks, from the model's states."""
    layers = _blocks(model)
    if layers is None:
        return _states(model, batch)[block + 1]  # entry 0 is the embedding
    outputs: list[torch.Tensor] = []

    def keep(
        _module: object, _inputs: object, output: torch.Tensor | tuple[torch.Tensor, ...]
    ) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)
        raise _Reached

    hook = layers[block].register_forward_hook(keep)
    try:
        model(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False)
    except _Reached:
        pass
    finally:
        hook.remove()
    return outputs[0]


def _states(model: PreTrainedModel, batch: TokenBatch) -> tuple[torch.Tensor, ...]:
    return model(
        input_ids=batch.ids, attention_mask=batch.mask, output_hidden_states=True
    ).hidden_states


def _blocks(model: PreTrainedModel) -> torch.nn.ModuleList | None:
    """The model's first module list with as many entries as the configuration has blocks; None if there is none."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return None
    count = model.config.get_text_config().num_hidden_layers
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return next((layers for layers in lists if len(layers) == count), None)
