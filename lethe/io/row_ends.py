"""Which rows of a table of answers are missing: no model ended them, a request failed, or nothing was said."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.answer_ends import ERROR, NO_TEXT, missing_kind
from lethe.io.cells import number_of_cell

if TYPE_CHECKING:
    import pandas as pd

# Columns that state why an answer ended, the first of which counts; `stop_reason` beside another one is vLLM's stop text.
ENDS = (
    "finish_reason",
    "finishreason",
    "finish_reasons",
    "stop_reason",
    "stopreason",
    "done_reason",
)
# Columns that hold an error where there was one, a status of HTTP, and texts of an answer.
ERRORS = ("error", "errors", "error_message", "exception")
STATUSES = ("status", "status_code", "http_status")
TEXTS = ("text", "response", "completion", "generation", "output", "reply")
NO_ERROR = ("", "none", "null", "nan", "<na>", "no", "n", "ok", "false", "0", "0.0", "off")
LEAST_ERROR = 400  # status of HTTP


def without_end(table: pd.DataFrame, *, empty_texts: bool = True) -> np.ndarray:
    """Which rows of a table, (rows,), are of answers that no model ended (`missing_kinds`)."""
    kinds = missing_kinds(table, empty_texts=empty_texts)
    return np.array([kind is not None for kind in kinds], dtype=bool)


def missing_kinds(table: pd.DataFrame, *, empty_texts: bool = True) -> list[str | None]:
    """Why the answer of each row is missing, by a column of ends, of errors, or of statuses; None where nothing says so.

    Without ``empty_texts`` a null in place of the text says so, too. A CSV has an empty answer as an empty cell.
    """
    kinds: list[str | None] = [None] * len(table)
    named = {str(name).lower(): name for name in table.columns}
    ends = [name for name in ENDS if name in named]
    of_columns: list[tuple[object, Callable[[object], str | None]]] = []
    if ends:
        of_columns.append((named[ends[0]], missing_kind))
    of_columns += [(named[name], _of_error) for name in ERRORS if name in named]
    of_columns += [(named[name], _of_status) for name in STATUSES if name in named]
    for column, kind_of in of_columns:
        values = list(table[column])
        kind_of_text = {str(value): kind_of(value) for value in values}
        kinds = [
            kind or kind_of_text[str(value)] for kind, value in zip(kinds, values, strict=True)
        ]
    texts = [named[name] for name in TEXTS if name in named]
    if texts and not empty_texts:
        has_text = table[texts].notna().any(axis="columns")
        kinds = [
            kind or (None if text else NO_TEXT) for kind, text in zip(kinds, has_text, strict=True)
        ]
    return kinds


def ending(header: Iterable[str]) -> list[str]:
    """The columns by which `missing_kinds` judges a row of a CSV: the first of `ENDS`, and those of errors and statuses."""
    named = {name.lower(): name for name in header}
    ends = [name for name in ENDS if name in named][:1]
    return [named[name] for name in (*ends, *ERRORS, *STATUSES) if name in named]


def _of_error(value: object) -> str | None:
    number = number_of_cell(value)
    if number is not None and number < 1:  # a measured error, or none
        return None
    return None if str(value).strip().lower() in NO_ERROR else ERROR


def _of_status(value: object) -> str | None:
    number = number_of_cell(value)
    return None if number is None or number < LEAST_ERROR else f"status {number:g}"
