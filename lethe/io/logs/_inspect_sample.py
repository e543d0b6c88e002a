"""One sample of an Inspect log: an answer, its scores, and its problems."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.errors import BadFile, shortened
from lethe.io.logs._log import number

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
ERRORED, LIMITED, WITHDRAWN = "error", "limit", "withdrawn"


@dataclass(frozen=True)
class Sample:
    """One sample. ``columns`` maps each score column to its scorer; ``unread`` lists scores without a numeric value."""

    id: str | int
    epoch: int
    prompt: str | None
    text: str
    scores: dict[str, float]
    columns: dict[str, str]
    unread: tuple[str, ...]
    problems: tuple[str, ...]
    retried: bool
    cut: bool
    edited: bool


def sample(path: Path, where: str, value: object) -> Sample:
    """Read a sample; errors name ``where``. Id and epoch come from the sample, never from the name of an entry."""
    if not isinstance(value, dict):
        raise BadFile(path, f"{where} is {type(value).__name__}, expected an object")
    identity, epoch = value.get("id"), value.get("epoch")
    if isinstance(identity, bool) or not isinstance(identity, (int, str)):
        raise BadFile(path, f"{where}: `id` is {type(identity).__name__}, expected a text or an integer")
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
        raise BadFile(path, f"{where}: `epoch` must be an integer of at least 1, got {shortened(epoch, 40)}")
    output = value.get("output") or {}
    if not isinstance(output, dict):
        raise BadFile(path, f"{where}: `output` is {type(output).__name__}, expected an object")
    given = value.get("scores") or {}
    if not isinstance(given, dict):
        raise BadFile(path, f"{where}: `scores` is {type(given).__name__}, expected an object")
    scores, columns, unread = _scores(given)
    reasons = ((ERRORED, "error"), (LIMITED, "limit"), (WITHDRAWN, "invalidation"))
    return Sample(
        identity,
        epoch,
        _prompt(value.get("input")),
        _text(path, where, output),
        scores,
        columns,
        unread,
        tuple(reason for reason, key in reasons if value.get(key)),
        bool(value.get("error_retries")),
        _choice(output).get("stop_reason") == "max_tokens",
        any(isinstance(score, dict) and bool(score.get("history")) for score in given.values()),
    )


def _choice(output: Mapping[str, Any]) -> dict[str, Any]:
    choices = output.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _text(path: Path, where: str, output: Mapping[str, Any]) -> str:
    """Return the completion; versions without the field have the text in the message of the first choice."""
    text = output.get("completion")
    if text is None:
        message = _choice(output).get("message")
        text = _content(message.get("content")) if isinstance(message, dict) else ""
    if not isinstance(text, str):
        raise BadFile(path, f"{where}: `output.completion` is {type(text).__name__}, expected a text")
    return text


def _content(content: Any) -> Any:
    """Join the texts of a list of parts as Inspect does; reasoning is not part of the answer."""
    if not isinstance(content, list):
        return "" if content is None else content
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _prompt(given: Any) -> str | None:
    """Return the question: a text unchanged; several messages as JSON of their roles and texts."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        return None
    messages = [
        {"role": message.get("role"), "content": _content(message.get("content"))}
        for message in given
        if isinstance(message, dict)
    ]
    if len(messages) == 1 and isinstance(messages[0]["content"], str):
        return messages[0]["content"]
    return json.dumps(messages, ensure_ascii=False)


def _scores(given: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str], tuple[str, ...]]:
    """Return one column per scorer, or one column `scorer.key` per key of a dictionary and per place of a list."""
    scores: dict[str, float] = {}
    columns: dict[str, str] = {}
    unread = []
    for scorer, score in given.items():
        value = score.get("value") if isinstance(score, dict) else None
        if isinstance(value, dict):
            parts = {f"{scorer}.{key}": part for key, part in value.items()}
        elif isinstance(value, list):
            parts = {f"{scorer}.{place}": part for place, part in enumerate(value)}
        else:
            parts = {scorer: value}
        for column, part in parts.items():
            scores[column] = score_value(part)
            columns[column] = scorer
            if math.isnan(scores[column]) and not isinstance(part, (int, float, type(None))):
                unread.append(column)
    return scores, columns, tuple(unread)


def score_value(value: object) -> float:
    """Convert a score as Inspect's reducers do: letters, words, and numbers written as text; NaN for anything else."""
    if not isinstance(value, str):
        return number(value)
    if value in LETTERS:
        return LETTERS[value]
    if value.lower() in WORDS:
        return WORDS[value.lower()]
    try:
        return number(float(value)) if "_" not in value else math.nan
    except ValueError:
        return math.nan
