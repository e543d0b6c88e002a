"""What the name of a column or of a key means, however it is spelled.

`finish_reason`, `finishReason`, `Finish-Reason` and `response.finish_reason` are one name. A word before a name may say of
what it is, such as the response; another word, as in `judge_temperature`, makes another name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from lethe.io.files import Json

if TYPE_CHECKING:
    import pandas as pd

WITHIN = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")
REMARK = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")  # temperature (T)
# Words that may stand before what a server or a model says of an answer: response.finish_reason, choices.0.finish_reason.
OF_ANSWERS = frozenset(
    (
        *"answer response reply output completion generation choice choices message result results".split(),
        *"request model llm native raw api http body data target".split(),
        *"metadata meta info details extra additional hidden notes kwargs params".split(),
    )
)
# Columns whose text may be an object's JSON. That of an answer is the model's own.
OF_OBJECTS = (
    *("metadata", "meta", "info", "details", "additional_kwargs", "hidden_params", "usage"),
    *("request", "request_body", "raw_response", "response_body"),
)
DEEPEST = 8  # objects that lie in one another
ALONE: frozenset[str] = frozenset()  # no word may stand before
# Words that may stand before the text of an answer. The text of a message or of a body may be that of a question.
OF_TEXTS = frozenset("model llm response completion generation generated output sampled".split())


@lru_cache(maxsize=1 << 14)
def meant(name: str, names: tuple[str, ...], before: frozenset[str] = OF_ANSWERS) -> str | None:
    """The one of ``names`` that a column's name means; None for another name.

    Parameters
    ----------
    name
        As it stands in a file.
    names
        In small letters, with an underscore between words.
    before
        The words that may stand before them. A number may, too.

    >>> names = ("finish_reason", "status_code")
    >>> [meant(name, names) for name in ("finishReason", "choices.0.Finish-Reason", "judge.finish_reason", "statuscode")]
    ['finish_reason', 'finish_reason', None, 'status_code']
    """
    if name.lower() in names:
        return name.lower()
    name_of_letters = _by_letters(names)
    words = [word.lower() for word in WITHIN.split(REMARK.sub("", name)) if word]
    for start in range(len(words)):
        found = name_of_letters.get("".join(words[start:]))
        if found is not None:
            return found
        if words[start] not in before and not words[start].isdecimal():
            return None
    return None


def columns_of(
    header: Iterable[str], names: tuple[str, ...], before: frozenset[str] = OF_ANSWERS
) -> list[str]:
    """The columns that mean one of ``names``, in the order of the names."""
    found = []
    for column in header:
        meaning = meant(str(column), names, before)
        if meaning is not None:
            found.append((names.index(meaning), column))
    return [column for _, column in sorted(found, key=lambda entry: entry[0])]


def spread(members: Mapping[str, Json]) -> dict[str, Json]:
    """The members of an object, and below them those of the objects inside it under names such as `request.params.seed`.

    Lists are not opened, and objects below `DEEPEST` others are left out.

    >>> spread({"id": 1, "metadata": {"sampling": {"seed": 2}}})["metadata.sampling.seed"]
    2
    """
    return dict(_members(members, "", DEEPEST))


def _members(members: Mapping[str, Json], before: str, depth: int) -> Iterator[tuple[str, Json]]:
    inner = []
    for name, value in members.items():
        path = f"{before}{name}"
        yield path, value
        if isinstance(value, dict) and depth:
            inner.append((path, value))
    for path, value in inner:
        yield from _members(value, f"{path}.", depth - 1)


def with_members(table: pd.DataFrame, is_read: Callable[[str], bool]) -> pd.DataFrame:
    """The table with a column for each member of the objects in its cells (`spread`) whose name ``is_read``.

    The text of a cell counts as the object whose JSON it is in a column of objects (`OF_OBJECTS`).
    """
    found: dict[str, list[Json]] = {}
    for column in table.columns:
        values = table[column]
        if values.dtype.kind != "O":
            continue
        may_be_text = meant(str(column), OF_OBJECTS) is not None
        for place, value in enumerate(values):
            members = object_in(value) if may_be_text else value
            if not isinstance(members, dict):
                continue
            for name, member in spread({str(column): members}).items():
                is_new = name not in table.columns and not isinstance(member, (dict, list))
                if is_new and is_read(name):
                    found.setdefault(name, [None] * len(table))[place] = member
    return table.assign(**found)


def object_in(value: Json) -> dict[str, Json]:
    """The object that a value is, or whose JSON it is; an empty one for any other value."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


@lru_cache(maxsize=256)
def _by_letters(names: tuple[str, ...]) -> dict[str, str]:
    """Each name by its letters alone."""
    return {name.replace("_", ""): name for name in names}
