"""A causal language model and its tokenizer, from a Hugging Face folder or from memory, ready for sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import BadValue
from lethe.models import checkpoints
from lethe.models.checkpoints import whole
from lethe.models.encoding import context_of
from lethe.models.in_memory import InMemory, Source
from lethe.sampling.engine import Options

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Checkpoint:
    """The facts about a model without its weights.

    ``end_ids`` end an answer; ``context`` is the model's largest number of positions, None if unbounded. ``cached`` numbers
    per position are a row's keys and values, each of ``bytes`` bytes.
    """

    source: Source
    tokenizer: PreTrainedTokenizerBase
    end_ids: tuple[int, ...]
    context: int | None
    vocabulary: int
    cached: int = 0
    bytes: int = 4

    def row_bytes(self, positions: int) -> int:
        """The memory of a row in flight: its keys and values, its logits, and their copy for the draw."""
        return self.cached * self.bytes * positions + 2 * 4 * self.vocabulary


def checkpoint(source: Source, options: Options | None = None) -> Checkpoint:
    """The facts about the model in a folder or in memory; ``options`` say in which format it computes."""
    from transformers import AutoConfig, GenerationConfig

    if isinstance(source, InMemory):
        model = source.model
        habits = model.generation_config or GenerationConfig.from_model_config(model.config)
        return _described(source, source.tokenizer, model.config, habits, str(model.dtype))
    folder = whole(checkpoints.check(source))
    tokenizer = checkpoints.load_tokenizer(folder)
    with checkpoints.refusals(folder):
        config = AutoConfig.from_pretrained(folder, **checkpoints.TRUSTED)
    try:
        generation = GenerationConfig.from_pretrained(folder)
    except OSError:  # the file is optional
        with checkpoints.refusals(folder):
            generation = GenerationConfig.from_model_config(config)
    options = options or Options()
    dtype = resolve_dtype(options, resolve_device(options.device))
    return _described(folder, tokenizer, config, generation, str(config.dtype) if dtype == "auto" else dtype)


def _described(
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    config: PretrainedConfig,
    generation: GenerationConfig,
    dtype: str,
) -> Checkpoint:
    end_ids, text = end_tokens(generation.eos_token_id, tokenizer), config.get_text_config()
    heads = getattr(text, "num_attention_heads", None) or 1
    width = getattr(text, "head_dim", None) or (getattr(text, "hidden_size", None) or 0) // heads
    keys = getattr(text, "num_key_value_heads", None) or heads
    cached = 2 * (getattr(text, "num_hidden_layers", None) or 0) * keys * width
    each = 2 if dtype.endswith("float16") else 4
    return Checkpoint(source, tokenizer, end_ids, context_of(config), text.vocab_size, cached, each)


def load(described: Checkpoint, options: Options) -> PreTrainedModel:
    """The model on its device, ready for sampling, without the checkpoint's generation settings.

    A model in memory is changed in place (see `in_memory.lent`) and stays on its device.
    """
    from transformers import GenerationConfig
    from transformers.utils.logging import disable_progress_bar

    if isinstance(described.source, InMemory):
        for name in ("device", "dtype"):
            if getattr(options, name) != "auto":
                raise BadValue(
                    name, getattr(options, name), "auto for a model in memory", "Move the model itself."
                )
        model = described.source.model.eval()
        model.generation_config = GenerationConfig()
        return model
    disable_progress_bar()
    device = resolve_device(options.device)
    model = checkpoints.load_weights(described.source, resolve_dtype(options, device))
    # Checkpoints set temperatures and repetition penalties, which would silently change the distribution.
    model.generation_config = GenerationConfig()
    return model.to(device)  # type: ignore[arg-type]  # transformers wraps it without its signature


def resolve_dtype(options: Options, device: torch.device) -> str:
    """The format of the weights on ``device``; "auto" on a GPU stays, as the checkpoint's own format."""
    return "float32" if options.dtype == "auto" and device.type == "cpu" else options.dtype


def end_tokens(configured: int | list[int] | None, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The tokens that end an answer: the model's own if it names any, else the tokenizer's."""
    if configured is None:
        configured = tokenizer.eos_token_id
    if configured is None:
        return ()
    return (configured,) if isinstance(configured, int) else tuple(configured)


def parameter_count(folder: Path) -> int:
    """The number of parameters in the folder's safetensors files, read only from the file headers."""
    from safetensors import safe_open

    count = 0
    for path in sorted(whole(folder).glob("*.safetensors")):
        with checkpoints.refusals(folder), safe_open(path, framework="np") as file:
            count += sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
    return count


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
