"""Which rows of a table of answers are missing: no model ended them, a request failed, or nothing was said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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

if TYPE_CHECKING:
    import pandas as pd

VLLM_STOP = "stop_reason"  # vLLM's is the token or the text that stopped the answer, or null
# Columns that state why an answer ended, of which the first that states something in a row counts.
ENDS = (
    "finish_reason",
    "finishreason",
    "finish_reasons",
    VLLM_STOP,
    "stopreason",
    "done_reason",
)
# Columns that hold an error where there was one, a status of HTTP or of a request, and texts of an answer.
ERRORS = ("error", "errors", "error_message", "exception")
STATUSES = ("status", "status_code", "http_status")
TEXTS = ("text", "response", "completion", "generation", "output", "reply")
SAYS_NOTHING = ("", "none", "null", "nan", "<na>", "na", "n/a", "-")
GOOD = frozenset("ok okay success successful succeeded complete completed done finished".split())
NO_ERROR = frozenset((*SAYS_NOTHING, *GOOD, "no", "n", "no error", "false", "off", "[]", "{}"))
NO_LOSS = frozenset((*SAYS_NOTHING, *GOOD, "true"))
BROKEN = re.compile(r"err|fail|time.?out|timed out|exception|false")
HTTP = re.compile(r"(?:https?(?:/[\d.]+)?\s+)?([1-5]\d\d)\b")  # 500 Internal Server Error
STOP_TEXT = re.compile(
    r"[\W\d_]+|<\S+>|\n.*", re.DOTALL
)  # ###, <|eot_id|>, or a new line: no word of a server
LEAST_ERROR = 400  # status of HTTP


def without_end(table: pd.DataFrame, *, empty_texts: bool = True) -> np.ndarray:
    """Which rows of a table, (rows,), are of answers that no model ended (`missing_kinds`)."""
    kinds = missing_kinds(table, empty_texts=empty_texts)
    return np.array([kind is not None for kind in kinds], dtype=bool)


def missing_kinds(table: pd.DataFrame, *, empty_texts: bool = True) -> list[str | None]:
    """Why the answer of each row is missing, by the columns of ends, of errors, or of statuses; None where nothing says so.

    Without ``empty_texts`` a null in place of the text says so, too. A CSV has an empty answer as an empty cell.
    """
    ends = [(column, _kind_of_end(column)) for column in _columns(table.columns, ENDS)]
    others = [(column, _of_error) for column in _columns(table.columns, ERRORS)]
    others += [(column, _of_status) for column in _columns(table.columns, STATUSES)]
    kinds: list[str | None] = [None] * len(table)
    for column, _ in ends:
        is_blank = [isinstance(value, str) and not value for value in table[column]]
        kinds = [NOT_STATED if blank else kind for blank, kind in zip(is_blank, kinds, strict=True)]
    for column, kind_of in reversed(ends):
        stated = _stated(table[column], kind_of)
        kinds = [kind if end is None else end[0] for kind, end in zip(kinds, stated, strict=True)]
    for column, kind_of in others:
        stated = _stated(table[column], kind_of)
        kinds = [kind or (end and end[0]) for kind, end in zip(kinds, stated, strict=True)]
    texts = _columns(table.columns, TEXTS)
    if texts and not empty_texts:
        has_text = table[texts].notna().any(axis="columns")
        kinds = [
            kind or (None if text else NO_TEXT) for kind, text in zip(kinds, has_text, strict=True)
        ]
    return kinds


def kind_of(answer: Mapping[str, object]) -> str | None:
    """Why an answer is missing, by what stands beside its text; None where nothing says so.

    >>> kind_of({"text": "", "error": "timeout"}), kind_of({"text": "Ada", "stopReason": "stop", "status": 200})
    ('error', None)
    """
    for column in _columns(answer, ENDS):
        stated = answer[column]
        if stated is not None and stated != "":
            kind = _kind_of_end(column)(stated)
            if kind is not None:
                return kind
            break
    for names, kind_of_cell in ((ERRORS, _of_error), (STATUSES, _of_status)):
        for column in _columns(answer, names):
            if answer[column] is not None and (kind := kind_of_cell(answer[column])):
                return kind
    return None


def ending(header: Iterable[str]) -> list[str]:
    """The columns by which `missing_kinds` judges a row of a CSV: those of ends, of errors and of statuses."""
    return _columns(header, (*ENDS, *ERRORS, *STATUSES))


def _columns(header: Iterable[str], names: Sequence[str]) -> list[str]:
    """The columns of these names in the order of the names, in all spellings."""
    found = [column for column in header if str(column).lower() in names]
    return sorted(found, key=lambda column: names.index(str(column).lower()))


def _stated(
    column: pd.Series, kind_of: Callable[[object], str | None]
) -> list[tuple[str | None] | None]:
    """The kind that each cell states, alone in a tuple; None for an empty cell, which states nothing."""
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
    return _of_stop if column.lower() == VLLM_STOP else missing_kind


def _of_stop(value: object) -> str | None:
    """As `missing_kind`, where the number or the text of a stop is one, too."""
    kind = missing_kind(value)
    number = number_of_cell(value)
    is_token = number is not None and number >= 0
    is_text = isinstance(value, str) and STOP_TEXT.fullmatch(value) is not None and number is None
    return None if kind == UNKNOWN and (is_token or is_text) else kind


def _of_error(value: object) -> str | None:
    number = number_of_cell(value)
    if number is not None and 0 <= number < 1:  # a measured error, or none
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
