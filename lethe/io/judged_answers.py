"""Answers with a person's labels, and with the verdicts of a judge whose error they measure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from lethe.errors import BadFile, BadRow, BadValue
from lethe.io.column_names import OF_TEXTS, columns_of
from lethe.io.copies import TEXTS, copied, copies, judged_twice
from lethe.io.files import Json
from lethe.io.ids import PROMPT, as_texts
from lethe.io.tables import JUDGE, file_line, numeric_column, read_table

if TYPE_CHECKING:
    import pandas as pd

LABEL = "label"
VERDICT = "verdict"
HOW_MISSING_COUNTS = "Choose how a missing value counts: --missing worst or --missing drop."


class JudgedAnswers(NamedTuple):
    """Labels (m,), 0 or 1, and verdicts (m,), 0, 1 or NaN (missing), of the same answers in file order; who judged."""

    labels: np.ndarray
    verdicts: np.ndarray
    judge: str | None = None


def read_calibration(
    path: str | os.PathLike,
    missing: Literal["refuse", "worst", "drop"] = "refuse",
    judge: str | None = None,
) -> JudgedAnswers:
    """Return the labels and verdicts of a user's table with columns `label`, `verdict` and optionally `judge`.

    ``missing`` says what becomes of an answer without a verdict: an error, a NaN, or a dropped row. Raises `BadFile` if the
    verdicts are of another judge than ``judge``, or no answer has one of the two labels, and `BadRow` for a cell that is
    neither 0 nor 1.
    """
    if missing not in ("refuse", "worst", "drop"):
        raise BadValue("missing", missing, "refuse, worst or drop")
    table = read_table(path, required=[LABEL, VERDICT], text=[JUDGE])
    judged_by = judge_in(path, table)
    if judge is not None and judged_by not in (None, judge):
        problem = f"measures the judge {judged_by}, and the verdicts are of the judge {judge}"
        remedy = (
            "Label answers of this judge's own verdicts, or name the calibration of this judge."
        )
        raise BadFile(path, problem, remedy)
    _check_one_judgement(path, table)
    labels = numeric_column(table, LABEL, path, words=True)
    verdicts = numeric_column(table, VERDICT, path, words=True)
    _check(path, LABEL, labels, "Label the answer or remove the row.")
    _check(path, VERDICT, verdicts, HOW_MISSING_COUNTS if missing == "refuse" else None)
    among = ""
    if missing == "drop":
        among = " with a verdict"
        judged = ~np.isnan(verdicts)
        labels = labels[judged]
        verdicts = verdicts[judged]
    _check_both(path, labels, among)
    return JudgedAnswers(labels=labels, verdicts=verdicts, judge=judged_by)


def _check_one_judgement(path: str | os.PathLike, table: pd.DataFrame) -> None:
    """Refuse an answer in several rows, as one that several people labelled: its labels are no independent ones."""
    name = next((column for column in (PROMPT, "question") if column in table), None)
    if name is None:
        name = PROMPT
        table = table.assign(prompt_id="all")
    is_copy = copies(table, name)
    if is_copy.any():
        raise BadRow(path, file_line(path, int(np.argmax(is_copy))), *copied(table, name))
    judged = judged_twice(table, name, columns_of(table.columns, TEXTS, OF_TEXTS))
    if judged is not None:
        raise BadFile(path, *judged)


def judge_in(path: str | os.PathLike, table: pd.DataFrame) -> str | None:
    """Return the judge that a table names, None where it names none; `BadFile` where it names several."""
    if JUDGE not in table:
        return None
    names = as_texts(table[JUDGE].dropna()).unique().tolist()
    if len(names) > 1:
        problem = f"has verdicts of {len(names)} judges ({JUDGE}: {', '.join(names[:3])})"
        raise BadFile(path, problem, "Keep one judge.")
    return next(iter(names), None)


class LabelledAnswer(NamedTuple):
    """An answer, a person's label, 0 or 1, and the other cells of its row, such as the question."""

    text: str
    label: int
    item: Mapping[str, Json]


def read_labelled(path: str | os.PathLike) -> list[LabelledAnswer]:
    """Return the rows of a user's table with columns `question, text, label`; errors are as of `read_calibration`."""
    texts = ["question", "text", "answer"]
    table = read_table(path, required=["question", "text", LABEL], text=texts)
    labels = numeric_column(table, LABEL, path, words=True)
    _check(path, LABEL, labels, "Label the answer or remove the row.")
    _check_one_judgement(path, table)
    answers = []
    for place, (label, row) in enumerate(zip(labels, table.to_dict("records"), strict=True)):
        item = {}
        for key, value in row.items():
            if key not in ("text", LABEL) and _present(value):
                item[str(key)] = value
        if not isinstance(item.get("question"), str):
            problem = f"question: got {row['question']!r}; must be text"
            raise BadRow(path, file_line(path, place), problem)
        # An empty cell of a CSV is an empty answer, which a judge judges like any other.
        text = row["text"]
        if not isinstance(text, str):
            text = ""
        answers.append(LabelledAnswer(text, int(label), item))
    _check_both(path, labels, "")
    return answers


def _present(value: object) -> bool:
    return isinstance(value, (str, list, dict)) or (value is not None and value == value)


def _check_both(path: str | os.PathLike, labels: np.ndarray, among: str) -> None:
    for value, meaning in ((1, "that a person calls a leak"), (0, "that a person calls no leak")):
        if not (labels == value).any():
            remedy = "Label some such answers: the judge's error on them must be measured."
            raise BadFile(path, f"has no answer{among} {meaning} ({LABEL} {value})", remedy)


def _check(path: str | os.PathLike, column: str, values: np.ndarray, remedy: str | None) -> None:
    """Check that every cell is 0 or 1; a missing cell is an error only with a ``remedy``."""
    absent = np.isnan(values)
    wrong = ~np.isin(values, (0, 1)) & ~(absent & (remedy is None))
    if wrong.any():
        place = int(np.argmax(wrong))
        line = file_line(path, place)
        if absent[place]:
            raise BadRow(path, line, f"{column} is missing", remedy or "")
        problem = f"{column}: got {values[place]:g}; must be 0 (no leak) or 1 (leak)"
        raise BadRow(path, line, problem)
