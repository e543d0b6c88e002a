"""A causal language model and its tokenizer from a Hugging Face folder, ready to be sampled from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stages.errors import BadFile, BadValue
from stages.sampling.engine import Options

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class LanguageModel:
    """``end_ids`` end an answer; ``context`` is the most positions the model has, None if unbounded."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    end_ids: tuple[int, ...]
    context: int | None

    @property
    def vocabulary(self) -> int:
        return self.model.get_input_embeddings().num_embeddings


def load(folder: Path, options: Options) -> LanguageModel:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if not (folder / "config.json").is_file():
        raise BadFile(folder, "not a model folder: it has no config.json", "Name a Hugging Face model folder.")
    device = resolve_device(options.device)
    dtype = options.dtype
    if dtype == "auto" and device.type == "cpu":
        dtype = "float32"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    except (OSError, ValueError, KeyError) as error:
        raise BadFile(folder, f"not a causal language model that transformers can load ({error})") from error
    model.eval().to(device)
    end_ids = end_tokens(model.generation_config.eos_token_id, tokenizer)
    # Checkpoints bring sampling habits of their own (temperature .6, repetition penalties): they would change the
    # distribution behind the back of the settings.
    model.generation_config = GenerationConfig(
        eos_token_id=list(end_ids) or None, pad_token_id=pad_token(tokenizer)
    )
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return LanguageModel(model, tokenizer, device, end_ids, context)


def end_tokens(configured: int | list[int] | None, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The tokens that end an answer: the model's own where it names any, else the tokenizer's."""
    if configured is None:
        configured = tokenizer.eos_token_id
    if configured is None:
        return ()
    return (configured,) if isinstance(configured, int) else tuple(configured)


def pad_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """A token to fill rows with; padding is masked, so any will do where the tokenizer names none."""
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0


def resolve_device(name: str) -> torch.device:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise BadValue("device", name, "cpu or auto on this machine, where torch sees no GPU")
    try:
        return torch.device(name)
    except RuntimeError:
        raise BadValue("device", name, "auto, cpu, cuda or cuda:INDEX") from None
