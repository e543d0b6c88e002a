"""What the name of a column or of a key means, however it is spelled.

`finish_reason`, `finishReason`, `Finish-Reason` and `response.finish_reason` are one name. A word before a name may say of
what it is, such as the response; another word, as in `judge_temperature`, makes another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

WITHIN = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")
REMARK = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")  # temperature (T)
# Words that may stand before what a server or a model says of an answer: response.finish_reason, choices.0.finish_reason.
OF_ANSWERS = frozenset(
    (
        *"answer response reply output completion generation choice choices message result results".split(),
        *"request model llm native raw api http body data target".split(),
    )
)
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


@lru_cache(maxsize=256)
def _by_letters(names: tuple[str, ...]) -> dict[str, str]:
    """Each name by its letters alone."""
    return {name.replace("_", ""): name for name in names}
