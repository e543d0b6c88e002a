"""A model in the caller's memory, accepted wherever a model folder is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.config.evaluating import Endpoint
from lethe.errors import BadFile
from lethe.io.json_files import read_json
from lethe.models import checkpoints

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class InMemory:
    """A causal language model and its tokenizer; the model stays on its device and keeps its number format."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    def __str__(self) -> str:
        return str(getattr(self.model, "name_or_path", "")) or "the model in memory"


Source = Path | InMemory  # the origin of a model
Origin = Source | Endpoint  # also of a model without weights here
QA_PROMPT = Path(__file__).parent / "prompts/qa.txt"


def tokenizer_of(source: Source) -> PreTrainedTokenizerBase:
    return source.tokenizer if isinstance(source, InMemory) else checkpoints.load_tokenizer(source)


def opened(source: Source) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model, in evaluation mode, and its tokenizer; `checkpoints.load` loads a folder."""
    if isinstance(source, InMemory):
        return source.model.eval(), source.tokenizer
    return checkpoints.load(source)


def default_prompt(source: Origin) -> str:
    """Return "chat" for a server and where the tokenizer has a chat template, else the template of a plain question."""
    if isinstance(source, Endpoint):
        return "chat"
    if not isinstance(source, Path):
        return "chat" if source.tokenizer.chat_template else str(QA_PROMPT)
    source = checkpoints.whole(source)
    place = source / "tokenizer_config.json"
    config = read_json(place) if place.is_file() else {}
    if not isinstance(config, dict):
        raise BadFile(place, f"holds {type(config).__name__}, expected an object")
    return "chat" if (source / "chat_template.jinja").is_file() or config.get("chat_template") else str(QA_PROMPT)


@contextlib.contextmanager
def lent(source: Origin) -> Iterator[None]:
    """Restore on exit torch's global settings, which `checkpoints.prepare_torch` changes, and a model in memory: its
    training modes and its generation settings."""
    import torch

    model = source.model if isinstance(source, InMemory) else None
    modes = [(module, module.training) for module in model.modules()] if model else []
    habits = model.generation_config if model else None
    memory: Any = torch.utils.deterministic  # a module whose one attribute is a property
    threads, fills = torch.get_num_threads(), memory.fill_uninitialized_memory
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        yield
    finally:
        if model:
            model.generation_config = habits  # type: ignore[assignment]  # a model may have none
        for module, training in modes:
            module.training = training
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic, warn_only=warns)
        memory.fill_uninitialized_memory = fills
