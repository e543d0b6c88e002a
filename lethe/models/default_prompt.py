"""The prompt of a model where the user names none: the model's chat template, else a plain question and answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import BadFile
from lethe.io.json_files import read_json

if TYPE_CHECKING:
    from lethe.models.in_memory import Source

QA_PROMPT = Path(__file__).parent / "prompts/qa.txt"


def default_prompt(source: Source) -> str:
    """Return "chat" where the tokenizer has a chat template, else the template of a plain question and answer."""
    if not isinstance(source, Path):
        return "chat" if source.tokenizer.chat_template else str(QA_PROMPT)
    from lethe.models.adapters import whole

    source = whole(source)
    place = source / "tokenizer_config.json"
    config = read_json(place) if place.is_file() else {}
    if not isinstance(config, dict):
        raise BadFile(place, f"holds {type(config).__name__}, expected an object")
    return "chat" if (source / "chat_template.jinja").is_file() or config.get("chat_template") else str(QA_PROMPT)
