"""Ids of questions: compared as text everywhere, and two that only look different are refused by both names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lethe.errors import shortened
from lethe.io.unseen import seen

if TYPE_CHECKING:
    import pandas as pd

PROMPT = "prompt_id"
NAME_THEM = "Name the column of the questions with --by (by in Python)."
WORD = re.compile(r"[^\W\d_]+")
# Words in the name of a column that names questions; the first candidate that is shown has one.
NAMES = frozenset(
    "id ids uid uuid key idx index prompt question item document doc task query instance".split()
)
# Columns of Lethe's own tables that say something of an answer, and never which question it answers.
OF_ANSWERS = frozenset(
    (
        *("sample", "text", "tokens", "finish_reason", "mean_confidence", "thinking", "turn"),
        *("response", "completion", "generation", "output", "reply"),
        *("stopped", "judge", "label", "verdict", "seed", "epoch"),
    )
)
# Words in the name of a column that counts or measures something of an answer.
MEASURES = frozenset(
    "tokens token length len count n time seconds cost words characters rank".split()
)
# Words in the name of a column whose text, another one in each row, says something of an answer.
REMARKS = frozenset(
    (
        *"text answer answers response content comment note notes explanation rationale reasoning".split(),
        *"output completion generation reply message judgement timestamp time date created at hash url file".split(),
    )
)
NAMELESS = "Unnamed:"  # what pandas calls a column without a name
WHOLE = re.compile(r"^([+-]?\d+)\.0+$")


def id_text(value: object) -> str:
    """The text by which an id is compared and shown; a true of JSON is "true", as in its file."""
    return str(value).lower() if _is_bool(value) else str(value)


def _is_bool(value: object) -> bool:
    return type(value).__name__ in ("bool", "bool_")  # of Python and of NumPy


def looks(value: object) -> set[str]:
    """The texts that an id looks like: two ids with a common look differ only in type, blanks or what cannot be seen.

    >>> looks(1) & looks("1"), looks(1.0) & looks(1), looks(True) & looks(1), looks("a ") & looks("a")
    ({'1'}, {'1'}, {'1'}, {'a'})
    >>> looks("01") & looks("1") | looks("1.0") & looks("1")
    set()
    """
    text = seen(id_text(value))
    if _is_bool(value):
        return {text, str(int(bool(value)))}
    if isinstance(value, float) and (whole := WHOLE.match(text)):
        return {text, whole[1]}
    return {text}


REMEDY = "Write the id of a question alike in all of its rows, or give two questions two names."


@dataclass(frozen=True)
class Alike:
    """Two ids that only look different, or only look alike, and the place of the second among all."""

    first: object
    second: object
    place: int

    def problem(self, name: str) -> str:
        first = _shown(self.first)
        second = _shown(self.second)
        if seen(first) == seen(second):  # one is composed
            first = ascii(first)[1:-1]
            second = ascii(second)[1:-1]
        return f"{name} {first} and {second} differ only in their type, in blanks or in what cannot be seen"


def _shown(value: object) -> str:
    """An id as Python writes it, so that 1, 1.0, True and '1' are four names."""
    item = getattr(value, "item", None)
    return shortened(item() if callable(item) else value)


def alike(values: Iterable[object]) -> Alike | None:
    """The first two ids that look the same and are not, or None."""
    known: set[tuple[type, object]] = set()
    first: dict[str, object] = {}
    for place, value in enumerate(values):
        key = type(value), value
        if key in known:
            continue
        known.add(key)
        for look in looks(value):
            earlier = first.setdefault(look, value)
            if (type(earlier), earlier) != key:
                return Alike(earlier, value, place)
    return None


def alike_in(column: pd.Series) -> Alike | None:
    """As `alike`, of a column, whose missing ids are left out; ``place`` is the position of the second id in the column."""
    import pandas as pd

    present = column.reset_index(drop=True).dropna()
    if pd.api.types.infer_dtype(present).startswith("mixed"):
        return _placed(present)
    return _placed(present.drop_duplicates())  # of one type, so that equal ids are one id


def _placed(present: pd.Series) -> Alike | None:
    found = alike(present)
    return found and replace(found, place=int(present.index[found.place]))


def as_text(column: pd.Series) -> pd.Series:
    """The ids of a column as text; a missing id stays missing, and an id of which nothing can be seen is missing."""
    import pandas as pd

    texts = column
    if pd.api.types.infer_dtype(column, skipna=True) != "string":
        texts = column.map(id_text, na_action="ignore").astype(object)
    unseen = [text for text in texts.dropna().unique() if not seen(text)]
    if not unseen:
        return texts
    return texts.mask(texts.isin(unseen), None)


def candidates(table: pd.DataFrame, scores: Collection[str]) -> list[str]:
    """The columns that may name the questions, other than ``scores``: those whose name says so first."""
    found = [name for name in map(str, table.columns) if _may_name(table[name], name, scores)]
    return sorted(found, key=lambda name: not _says_so(name))


def as_texts(column: pd.Series) -> pd.Series:
    """The cells of a column as Python writes them, whatever they are: also lists, and bytes that are no text."""
    return column.astype(object).map(str)


def repeats(column: pd.Series) -> bool:
    """Whether two cells of a column are the same text."""
    return as_texts(column).nunique() < len(column)


def _words(name: str) -> set[str]:
    return set(WORD.findall(name.replace("_", " ").casefold()))


def _says_so(name: str) -> bool:
    return bool(NAMES & _words(name))


def _may_name(column: pd.Series, name: str, scores: Collection[str]) -> bool:
    """Whether a column may name the questions: its name says so, its cells repeat, or each row has its own text."""
    import pandas as pd

    if name in scores or name in OF_ANSWERS:
        return False
    distinct = as_texts(column).nunique()
    if distinct < 2:
        return False
    is_numeric = pd.api.types.is_numeric_dtype(column)
    if is_numeric and name.startswith(NAMELESS) and distinct == len(column):
        return False  # the row numbers of pandas
    if _says_so(name):
        return True
    if not is_numeric:
        return distinct < len(column) or not REMARKS & _words(name)
    if distinct == len(column) or MEASURES & _words(name):
        return False
    numbers = column.dropna().astype(float)
    if ((numbers >= 0) & (numbers <= 1)).all():  # another score
        return False
    whole = bool((numbers % 1 == 0).all())
    return whole or bool(numbers.duplicated(keep=False).all())  # 1.1 and 1.2 name sections
