"""Values of the JSON of a log, which is untrusted: one of another type counts as an empty or missing one."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from lethe.io.files import Json


def number(value: object) -> float:
    """Return a score as float: true is 1, and a value that is not a finite number is NaN (missing)."""
    if not isinstance(value, (int, float)):
        return math.nan
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return math.nan
    return float(value) if finite else math.nan


def as_object(value: Json) -> dict[str, Json]:
    """Return an object of JSON; an empty one in place of any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return a list of JSON; an empty one in place of any other value."""
    return value if isinstance(value, list) else []


def as_text(value: Json) -> str | None:
    """Return a text of JSON; None in place of any other value."""
    return value if isinstance(value, str) else None


def object_at(parent: Mapping[str, Json], key: str) -> dict[str, Json]:
    """Return the object under a key; an empty one in place of any other value."""
    return as_object(parent.get(key))


def list_at(parent: Mapping[str, Json], key: str) -> list[Json]:
    """Return the list under a key; an empty one in place of any other value."""
    return as_list(parent.get(key))


def objects_at(parent: Mapping[str, Json], key: str) -> list[dict[str, Json]]:
    """Return the items of a list, an empty object in place of each item of another type."""
    return [as_object(item) for item in list_at(parent, key)]


def text_at(parent: Mapping[str, Json], key: str) -> str | None:
    """Return the text under a key; None in place of any other value."""
    return as_text(parent.get(key))


def is_integer(value: Json) -> TypeGuard[int]:
    """Whether a value of JSON is an integer, which true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def conversation(messages: Sequence[tuple[Json, Json]]) -> str:
    """Return a prompt of pairs of role and text: the text of a single message, else JSON of roles and texts."""
    if len(messages) == 1 and isinstance(messages[0][1], str):
        return messages[0][1]
    named = [{"role": role, "content": text} for role, text in messages]
    return json.dumps(named, ensure_ascii=False)
