"""Numbers as people write them in a table: plain, as yes and no, in percent, or with a decimal comma."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Number
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MISSING = (
    "",
    *("NA", "N/A", "n/a", "#N/A", "<NA>"),
    *("NaN", "nan", "-nan"),
    *("NULL", "null", "None", "none"),
)
VALUE_OF_WORD = {"yes": 1.0, "no": 0.0, "y": 1.0, "n": 0.0, "true": 1.0, "false": 0.0}
BOOLS = (bool, np.bool_)
PERCENT = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)\s*%")
ONE = "one"  # the form of a 1, which fits every form but percent
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")


class NoNumber(ValueError):
    """A cell that is no number beside the others; its ``place`` is its row from 0."""

    def __init__(self, place: int, value: object, reason: str = "expected a number"):
        super().__init__(reason)
        self.place = place
        self.value = value
        self.reason = reason


@dataclass(frozen=True)
class NumberColumn:
    """The numbers of a column, (rows,), NaN where a cell is missing, and the words for 1 and 0, if the column has words.

    ``form`` is plain, words, percent or decimal comma.
    """

    values: np.ndarray
    form: str = "plain"
    word_of_1: str = "1"


def numbers_of(column: pd.Series, words: bool = True) -> NumberColumn:
    """Read a column of numbers, in one form. Yes and no are numbers only with ``words``: no loss and no rank is a *yes*.

    Raises
    ------
    NoNumber
        At the first cell that is no number, or at the first one of the rarest form; of equally rare ones, of the later.

    >>> import pandas as pd
    >>> numbers_of(pd.Series(["3%", "40 %", ""])).values.tolist()
    [0.03, 0.4, nan]
    >>> numbers_of(pd.Series(["yes", "No", "1"])).values.tolist()
    [1.0, 0.0, 1.0]
    """
    import pandas as pd

    if pd.api.types.is_bool_dtype(column):
        if len(column) and not words:
            raise NoNumber(0, bool(column.iloc[0]))
        return NumberColumn(column.to_numpy(dtype=np.float64, na_value=np.nan), "words", "true")
    if len(column) and (column.dtype.kind in "mMc" or isinstance(column.dtype, pd.PeriodDtype)):
        raise NoNumber(0, column.iloc[0])  # a time, which pandas counts in nanoseconds
    if pd.api.types.is_numeric_dtype(column):
        return NumberColumn(column.to_numpy(dtype=np.float64, na_value=np.nan))
    # pandas takes true beside 0.5 for 1.
    if column.dtype == object and any(isinstance(value, BOOLS) for value in column):
        return _cell_by_cell(column, words)
    try:
        return NumberColumn(pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan))
    except (OverflowError, TypeError, ValueError):
        return _cell_by_cell(column, words)


def number_of_cell(value: object) -> float | None:
    """A value alone as a number in any of the forms but yes and no, NaN where it is missing; None where it is none.

    >>> [number_of_cell(value) for value in ("0,0", "0%", "0.5", "warm")]
    [0.0, 0.0, 0.5, None]
    """
    try:
        return _read(value, 0, words=False).value
    except NoNumber:
        return None


def _cell_by_cell(column: pd.Series, words: bool) -> NumberColumn:
    """As `numbers_of`, of a column that pandas cannot read; equal texts are read once."""
    known: dict[str, _Cell] = {}
    places_of_form: dict[str, list[int]] = {}
    word = "1"
    place_of_one: int | None = None
    values = np.empty(len(column))
    for place, value in enumerate(column):
        cell = known.get(value) if isinstance(value, str) else None
        if cell is None:
            cell = _read(value, place, words)
        if isinstance(value, str):
            known[value] = cell
        values[place] = cell.value
        if cell.form == ONE:
            if place_of_one is None:
                place_of_one = place
            continue
        if cell.form == "words" and cell.value == 1:
            word = str(value).strip().lower()
        if cell.form:
            places_of_form.setdefault(cell.form, []).append(place)
    form = _only_form(column, places_of_form)
    if form == "percent" and place_of_one is not None:
        raise NoNumber(place_of_one, 1, "which may be 1% or 100% beside percent signs")
    return NumberColumn(values, form or "plain", word)


def _only_form(column: pd.Series, places_of_form: Mapping[str, Sequence[int]]) -> str:
    """The one form of a column's cells, empty where no cell has one; `NoNumber` at the odd one out if there are several."""
    if len(places_of_form) < 2:
        return next(iter(places_of_form), "")
    # Of a form that is as rare, the later one is at odds.
    rarest = min(
        places_of_form, key=lambda form: (len(places_of_form[form]), -places_of_form[form][0])
    )
    place = places_of_form[rarest][0]
    others = [form for form in places_of_form if form != rarest]
    before = places_of_form[others[0]][0] < place
    where = "before" if before else "after"
    reason = f"{_SAID[rarest]}, but the cells {where} have {_SAID[others[0]]}"
    raise NoNumber(place, column.iloc[place], reason)


# How a column is written, in an error.
_SAID = {
    "plain": "a plain number",
    "words": "yes or no",
    "percent": "a percent sign",
    "decimal comma": "a decimal comma",
}


@dataclass(frozen=True)
class _Cell:
    """The number of a cell and the form that its column must have; none where a 0 or nothing fits any form."""

    value: float
    form: str


def _read(value: object, place: int, words: bool) -> _Cell:
    import pandas as pd

    text = str(value).strip()
    # Spelled-out NaN is a missing value, not a broken cell.
    if text in MISSING or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return _Cell(math.nan, "")
    if isinstance(value, (str, *BOOLS)) and words and text.lower() in VALUE_OF_WORD:
        return _Cell(VALUE_OF_WORD[text.lower()], "words")
    if isinstance(value, str):
        if PERCENT.fullmatch(text):
            return _Cell(float(text.rstrip("% ").replace(",", ".")) / 100, "percent")
        if DECIMAL_COMMA.fullmatch(text):
            return _Cell(float(text.replace(",", ".")), "decimal comma")
    number = _plain_number(value, place)
    if number == 0:
        return _Cell(number, "")
    if number == 1:
        return _Cell(number, ONE)
    return _Cell(number, "plain")


def _plain_number(value: object, place: int) -> float:
    try:
        # Only Python reads 1_0 as ten, and true as one.
        if isinstance(value, BOOLS) or (isinstance(value, str) and "_" in value):
            raise ValueError
        # NumPy takes a list of one number for the number, and Python bytes for text.
        if not isinstance(value, (str, Number, Decimal)):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except OverflowError:  # an integer of hundreds of digits
        return -math.inf if value < 0 else math.inf  # type: ignore[operator]
    except (TypeError, ValueError):
        raise NoNumber(place, value) from None
