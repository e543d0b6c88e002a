"""Which rows of a table of answers are missing: no model ended them, a request failed, or nothing was said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.answer_ends import (
    ANSWERED,
    ERROR,
    MEANINGS,
    NO_TEXT,
    NOT_STATED,
    UNKNOWN,
    missing_kind,
)
from lethe.io.cells import number_of_cell
from lethe.io.column_names import OF_OBJECTS, OF_TEXTS, columns_of, meant, spread, with_members
from lethe.io.copies import TEXTS

if TYPE_CHECKING:
    import pandas as pd

VLLM_STOP = "stop_reason"  # vLLM's is the token or the text that stopped the answer, or null
# Columns that state why an answer ended, of which the first that states something in a row counts.
ENDS = (
    *("finish_reason", "finish_reasons", VLLM_STOP, "done_reason"),
    *("end_reason", "termination_reason", "completion_reason"),
)
# Columns that hold an error where there was one, a status of HTTP or of a request, and texts of an answer.
ERRORS = (
    *("error", "errors", "error_message", "error_msg", "error_code", "error_type"),
    *("exception", "exception_message", "exception_type", "is_error", "has_error", "errored"),
    "timed_out",
)
CODES = ("status_code", "http_status", "http_status_code", "http_code")
STATUSES = ("status", *CODES)
STATED = (*ENDS, *ERRORS, *STATUSES)
SAYS_NOTHING = ("", "none", "null", "nan", "<na>", "na", "n/a", "-")
GOOD = frozenset("ok okay success successful succeeded complete completed done finished".split())
NO_ERROR = frozenset((*SAYS_NOTHING, *GOOD, "no", "n", "no error", "false", "off", "[]", "{}"))
NO_LOSS = frozenset((*SAYS_NOTHING, *GOOD, "true"))
BROKEN = re.compile(r"err|fail|time.?out|timed out|exception|false")
HTTP = re.compile(r"(?:https?(?:/[\d.]+)?\s+)?([1-5]\d\d)\b")  # 500 Internal Server Error
# ###, <|eot_id|>, or a new line: no word of a server
STOP_TEXT = re.compile(r"[\W\d_]+|<\S+>|\n.*", re.DOTALL)
LEAST_ERROR = 400  # status of HTTP


def without_end(table: pd.DataFrame, *, empty_texts: bool = True) -> np.ndarray:
    """Which rows of a table, (rows,), are of answers that no model ended (`missing_kinds`)."""
    kinds = missing_kinds(table, empty_texts=empty_texts)
    return np.array([kind is not None for kind in kinds], dtype=bool)


def missing_kinds(table: pd.DataFrame, *, empty_texts: bool = True) -> list[str | None]:
    """Why the answer of each row is missing, by the columns of ends, of errors, or of statuses; None where nothing says so.

    Parameters
    ----------
    table
        Rows of answers, with columns under any names; their spelling in capitals does not count.
    empty_texts
        Whether a row without a text may be an empty answer, as in a CSV; else a null in its place is a missing one.

    Returns
    -------
    list
        A kind of `lethe.io.answer_ends` for each row.
    """
    table = with_members(table, lambda name: meant(name, STATED) is not None)
    kinds = _kinds_of_ends(table)

    # A row without a kind so far has that of its error, or of its status.
    others = [(column, _of_error) for column in columns_of(table.columns, ERRORS)]
    others += [(column, _of_status) for column in columns_of(table.columns, STATUSES)]
    for column, kind_of_cell in others:
        for row, cell in enumerate(_stated(table[column], kind_of_cell)):
            if cell is not None and not kinds[row]:
                kinds[row] = cell[0]

    texts = columns_of(table.columns, TEXTS, OF_TEXTS)
    if texts and not empty_texts:
        for row, has_text in enumerate(table[texts].notna().any(axis="columns")):
            if not has_text and not kinds[row]:
                kinds[row] = NO_TEXT
    return kinds


def _kinds_of_ends(table: pd.DataFrame) -> list[str | None]:
    """The kind of each row by the columns of ends alone, of which the first that states something in a row counts."""
    kinds: list[str | None] = [None] * len(table)
    ends = columns_of(table.columns, ENDS)
    for column in ends:
        for row, value in enumerate(table[column]):
            if isinstance(value, str) and not value:
                kinds[row] = NOT_STATED
    for column in reversed(ends):
        for row, end in enumerate(_stated(table[column], _kind_of_end(column))):
            if end is not None:
                kinds[row] = end[0]
    return kinds


def kind_of(answer: Mapping[str, object]) -> str | None:
    """Why an answer is missing, by what stands beside its text or in an object there; None where nothing says so.

    >>> kind_of({"text": "", "error": "timeout"}), kind_of({"text": "Ada", "stopReason": "stop", "status": 200})
    ('error', None)
    """
    members = spread(answer)
    for column in columns_of(members, ENDS):
        stated = members[column]
        if stated is not None and stated != "":
            kind = _kind_of_end(column)(stated)
            if kind is not None:
                return kind
            break

    for names, kind_of_cell in ((ERRORS, _of_error), (STATUSES, _of_status)):
        for column in columns_of(members, names):
            cell = members[column]
            kind = None if cell is None else kind_of_cell(cell)
            if kind is not None:
                return kind
    return None


def ending(header: Iterable[str]) -> list[str]:
    """The columns of ends, of errors and of statuses."""
    return columns_of(header, STATED)


def ending_in_cells(header: Iterable[str]) -> list[str]:
    """The columns by which `missing_kinds` judges a row of a CSV: also those whose text may be an object's JSON."""
    return columns_of(header, (*STATED, *OF_OBJECTS))


def _stated(
    column: pd.Series, kind_of: Callable[[object], str | None]
) -> list[tuple[str | None] | None]:
    """The kind that each cell states, alone in a tuple; None for an empty cell, which states nothing.

    So "states nothing" is told from "states that nothing is missing". Equal texts are judged once: a log has millions of
    rows and few endings.
    """
    kind_of_text: dict[str, tuple[str | None]] = {}
    stated: list[tuple[str | None] | None] = []
    for value, is_null in zip(column, column.isna(), strict=True):
        if is_null or (isinstance(value, str) and not value):
            stated.append(None)
            continue
        text = str(value)
        if text not in kind_of_text:
            kind_of_text[text] = (kind_of(value),)
        stated.append(kind_of_text[text])
    return stated


def _kind_of_end(column: str) -> Callable[[object], str | None]:
    """How the cells of a column of ends are judged."""
    return _of_stop if meant(str(column), ENDS) == VLLM_STOP else missing_kind


def _of_stop(value: object) -> str | None:
    """As `missing_kind`, where the number of a token or the text of a stop is a good end, too."""
    kind = missing_kind(value)
    if kind != UNKNOWN:
        return kind
    number = number_of_cell(value)
    if number is not None:
        return None if number >= 0 else kind
    is_stop = isinstance(value, str) and STOP_TEXT.fullmatch(value) is not None
    return None if is_stop else kind


def _of_error(value: object) -> str | None:
    """The kind of a cell that holds an error: a number below 1 is a measured error, and some words say that there is none."""
    number = number_of_cell(value)
    if number is not None and 0 <= number < 1:
        return None
    return None if str(value).strip().lower() in NO_ERROR else ERROR


def _of_status(value: object) -> str | None:
    """The kind of a status: a number, a number with its words, or a word, of which an unknown one is no good end."""
    word = str(value).strip().lower()
    if word in NO_LOSS:
        return None
    of_http = HTTP.match(word)
    number = float(of_http[1]) if of_http else number_of_cell(value)
    if number is not None:
        return None if 0 <= number < LEAST_ERROR else f"status {number:g}"
    kind = MEANINGS.get(word, ERROR if BROKEN.search(word) else UNKNOWN)
    return None if kind in ANSWERED else kind
