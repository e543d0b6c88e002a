"""A language model: where it is, what decides its answers, and how it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import BadFile, BadValue, shortened
from lethe.models import checkpoints
from lethe.models.chat_template import end_of_turn
from lethe.models.checkpoints import InMemory, Source, whole
from lethe.models.encoding import context_of

if TYPE_CHECKING:
    import torch
    from transformers import (
        GenerationConfig,
        PretrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
    )


@dataclass(frozen=True)
class Model:
    """A model without its weights, which `load` gives. ``end_ids`` end an answer, and so do ``end_texts``, which are of
    several ordinary tokens; ``context`` is the largest number of positions, None if unbounded. ``cached`` numbers per
    position, of the format ``dtype``, are a row's keys and values."""

    source: Source
    tokenizer: PreTrainedTokenizerBase
    end_ids: tuple[int, ...]
    context: int | None
    vocabulary: int
    cached: int = 0
    dtype: str = "float32"
    end_texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: Source, device: str = "auto", dtype: str = "auto") -> Model:
        """The model in a folder or in memory; it computes on ``device`` in the format ``dtype``.

        Raises
        ------
        BadFile
            If the folder holds no model, or a setting that transformers cannot read.
        BadValue
            If this machine has no such device.
        """
        from transformers import GenerationConfig

        if isinstance(source, InMemory):
            config = source.model.config
            generation = source.model.generation_config
            if generation is None:
                generation = GenerationConfig.from_model_config(config)
            return _described(source, source.tokenizer, config, generation, str(source.model.dtype))
        folder = whole(checkpoints.check(source))
        tokenizer = checkpoints.load_tokenizer(folder)
        config = checkpoints.load_config(folder)
        generation = _generation_config(folder, config)
        dtype = resolve_dtype(dtype, resolve_device(device))
        if dtype == "auto":
            dtype = str(config.dtype)
        return _described(folder, tokenizer, config, generation, dtype)

    def load(self, device: str = "auto", dtype: str = "auto") -> PreTrainedModel:
        """The model on its device, without the checkpoint's generation settings; one in memory is changed in place."""
        from transformers import GenerationConfig
        from transformers.utils.logging import disable_progress_bar

        if isinstance(self.source, InMemory):
            for name, value in (("device", device), ("dtype", dtype)):
                if value != "auto":
                    legal = "auto for a model in memory"
                    raise BadValue(name, value, legal, "Move the model itself.")
            model = self.source.model.eval()
            model.generation_config = GenerationConfig()
            return model
        disable_progress_bar()
        place = resolve_device(device)
        model = checkpoints.load_weights(self.source, resolve_dtype(dtype, place))
        # Checkpoints set temperatures and repetition penalties, which would silently change the distribution.
        model.generation_config = GenerationConfig()
        return model.to(place)  # type: ignore[arg-type]  # transformers wraps it without its signature

    def row_bytes(self, positions: int) -> int:
        """The memory of a row in flight: its keys and values, its logits, and their copy for the draw."""
        size = 2 if self.dtype.endswith("float16") else 4
        return self.cached * size * positions + 2 * 4 * self.vocabulary


def _described(
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    config: PretrainedConfig,
    generation: GenerationConfig,
    dtype: str,
) -> Model:
    """The model of these settings, each checked."""
    text = config.get_text_config()

    def stated(key: str) -> int:
        return checkpoints.whole_number(source, key, getattr(text, key, None))

    heads = stated("num_attention_heads") or 1
    width = stated("head_dim") or stated("hidden_size") // heads
    key_heads = stated("num_key_value_heads") or heads
    vocabulary = stated("vocab_size")
    # An answer ends with whatever ends a turn: generation_config.json often lacks that of the chat template.
    of_template = end_of_turn(tokenizer)
    end_ids = list(_end_ids(source, generation.eos_token_id))
    for token in (*_end_ids(source, tokenizer.eos_token_id), of_template.token):
        if token is not None and token not in end_ids and token < vocabulary:
            end_ids.append(token)
    end_texts = _end_texts(source, generation.stop_strings)
    if of_template.text is not None and of_template.text not in end_texts:
        end_texts.append(of_template.text)
    return Model(
        source,
        tokenizer,
        tuple(end_ids),
        context_of(config),
        vocabulary,
        cached=2 * stated("num_hidden_layers") * key_heads * width,
        dtype=dtype.removeprefix("torch."),
        end_texts=tuple(end_texts),
    )


def _generation_config(folder: Path, config: PretrainedConfig) -> GenerationConfig:
    """The settings of generation_config.json, or, since the file is optional, those of the model."""
    from transformers import GenerationConfig

    path = folder / "generation_config.json"
    if not path.exists():
        with checkpoints.refusals(folder):
            return GenerationConfig.from_model_config(config)
    with checkpoints.refusals(path, "is not a generation config that transformers can load"):
        return GenerationConfig.from_pretrained(folder)


def _end_texts(source: Source, ends: object) -> list[str]:
    """The texts that end an answer, from one text, a list of texts or None."""
    if ends is None:
        return []
    listed: Sequence[object] = ends if isinstance(ends, (list, tuple)) else [ends]
    texts = []
    for text in listed:
        if not isinstance(text, str) or not text:
            problem = f"names the end {shortened(text)}; must be a text"
            remedy = "Write the text into generation_config.json, key stop_strings."
            raise BadFile(str(source), problem, remedy)
        texts.append(text)
    return texts


def _end_ids(source: Source, ends: object) -> tuple[int, ...]:
    """The ids of the tokens that end an answer, from one id, a list of ids or None."""
    if ends is None:
        return ()
    listed: Sequence[object] = ends if isinstance(ends, (list, tuple)) else [ends]
    known = []
    for token in listed:
        if type(token) is not int:
            problem = f"names the end token {shortened(token)}; must be the id of a token"
            remedy = "Write the id into generation_config.json, key eos_token_id."
            raise BadFile(str(source), problem, remedy)
        if token >= 0:  # -1 says that no token ends an answer
            known.append(token)
    return tuple(known)


def resolve_dtype(dtype: str, device: torch.device) -> str:
    """The format of the weights on ``device``; "auto" on a GPU stays, as the checkpoint's own format."""
    if dtype == "auto" and device.type == "cpu":
        return "float32"
    return dtype


def parameter_count(folder: Path) -> int:
    """The number of parameters in the folder's safetensors files, read only from the file headers."""
    return checkpoints.Stored.of(whole(folder)).numbers


def resolve_device(name: str) -> torch.device:
    """The torch device of ``name``, where "auto" prefers a GPU; raises `BadValue`."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise BadValue("device", name, "cpu or auto on this machine, where torch sees no GPU")
    try:
        return torch.device(name)
    except RuntimeError:
        raise BadValue("device", name, "auto, cpu, cuda or cuda:INDEX") from None
