"""The answers of a run that a person may label, by question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadRow, BadValue, plural, shortened
from lethe.io import csv_form
from lethe.io.answer_ends import NO_TEXT
from lethe.io.artifacts import GREEDY, TURNS, first_rows, read_references
from lethe.io.copies import copied, copies
from lethe.io.facts import Facts, says_stopped
from lethe.io.files import Json, read_artifact, read_jsonl
from lethe.io.row_ends import missing_kinds
from lethe.io.row_facts import facts_of_rows
from lethe.io.tables import file_line, is_ours, numeric_column, read_table, suffix_of
from lethe.labels.labels import AnswerText

if TYPE_CHECKING:
    import pandas as pd


FORGET = "forget.parquet"
STOPPED_EARLY = (
    "holds a run with early stopping, and these bounds need a number of answers fixed beforehand"
)


@dataclass(frozen=True)
class Wanted:
    """What a person compares an answer with: the reference answer, "" where there is none, and the keywords."""

    reference: str = ""
    keywords: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Json]) -> Wanted:
        """Read a row of the dataset; values that are no texts are left out."""
        answer, keywords = row.get("answer"), row.get("keywords")
        texts: list[str] = []
        if isinstance(keywords, list):
            texts = [keyword for keyword in keywords if isinstance(keyword, str)]
        return cls(answer if isinstance(answer, str) else "", tuple(texts))


@dataclass(frozen=True)
class DrawnAnswers:
    """The answers of a run by question, in sampling order, with the texts of the questions and the judge's verdicts (1, 0 or
    NaN) where there are any. ``wanted`` is the answer of the dataset that must not come, and its keywords, by question.
    ``stated`` is what the rows state of how they were drawn. A missing answer is None, and ``missing`` counts them by kind.
    """

    answers: Mapping[str, Sequence[AnswerText | None]]
    questions: Mapping[str, str]
    verdicts: Mapping[str, np.ndarray] = field(default_factory=dict)
    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    stated: Facts = field(default_factory=Facts)
    missing: Mapping[str, int] = field(default_factory=dict)

    def present(self) -> Iterator[AnswerText]:
        """The answers that are not missing, question by question."""
        for answers in self.answers.values():
            yield from filter(None, answers)


def read_draws(
    path: Path, dataset: Path | None, verdicts: Path | None, column: str | None
) -> DrawnAnswers:
    """Read a run: a folder of ``data/generations``, or a table with ``prompt_id``, ``text`` and optionally ``sample``."""
    file = path
    if path.is_dir():
        file = path / FORGET
    if file.name == FORGET:  # a run, whether its folder or its file is named
        about = file.with_name("about.json")
        if about.is_file() and read_artifact(about).get("stop") == "sequential":
            raise BadFile(path, STOPPED_EARLY, "Sample with `sample.stop: fixed`.")
        refuse_references(file.parent)
    table = read_table(file, required=["prompt_id", "text"], text=["text"], ids=["prompt_id"])
    if "sample" in table:
        table = first_rows(table, file)
        table = table.assign(sample=numeric_column(table, "sample", file))
        # A table may be sorted by content; the random draws are of places in sampling order.
        table = table[table["sample"] != GREEDY].sort_values("sample", kind="stable")
    if table.empty:
        raise BadFile(file, "holds no sampled answers")
    if suffix_of(file) in csv_form.SUFFIXES:  # a CSV has an empty answer as an empty cell
        table["text"] = table["text"].fillna("")
    _check_rows(table, file)
    table = table.reset_index(drop=True)
    if verdicts is not None:
        table["verdict"] = _verdicts(table, file, verdicts, column)
    rows = _rows(dataset) if dataset is not None else {}
    questions: dict[str, str] = {}
    for name, row in rows.items():
        text = row.get("question")
        if isinstance(text, str):
            questions[name] = text
    wanted = {name: Wanted.of(row) for name, row in rows.items()}
    rows = table.drop(columns="text") if is_ours(file) else table  # a model may say one text
    stated = facts_of_rows(rows, "prompt_id")
    return replace(draws_of(table, questions), wanted=wanted, stated=stated)


def _check_rows(table: pd.DataFrame, file: Path) -> None:
    """Refuse rows that no bound of labels holds for: stopped draws, and copies."""
    if says_stopped(table):
        raise BadFile(file, STOPPED_EARLY, "Draw a number of answers that is fixed beforehand.")
    for place, text in table["text"].dropna().items():
        if not isinstance(text, str):
            problem = f"column text: got {shortened(text)}, expected a text"
            raise BadRow(file, file_line(file, int(place)), problem)
    repeats = copies(table, "prompt_id")
    if repeats.any():
        line = file_line(file, int(table.index[repeats].min()))
        raise BadRow(file, line, *copied(table, "prompt_id"))


def of_missing(missing: Mapping[str, int]) -> str:
    """How many answers are missing, by kind, and how they count; empty where none is."""
    if not missing:
        return ""
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in missing.items())
    answers = plural(sum(missing.values()), "missing answer")
    return f"{answers} ({kinds}) cannot be labelled, and count as leaks in upper bounds and as clean in lower ones."


def refuse_references(generations: Path) -> None:
    """Refuse wordings that ask for other answers, and follow-up questions: a label is of a question and an answer."""
    if Path(generations, TURNS).is_file():
        problem = "holds answers to follow-up questions, and a label belongs to one answer"
        raise BadFile(generations, problem, "Leave out followups (and turns of the language).")
    wordings: set[str] = set()
    for references in read_references(generations).values():
        wordings.update(reference.wording for reference in references.values())
    if wordings:
        named = ", ".join(sorted(wordings))
        wrong = f"holds answers to wordings that ask for an answer of their own ({named})"
        problem = f"{wrong}, and a label belongs to one question"
        raise BadFile(generations, problem, "Leave out these wordings of the language.")


def draws_of(table: pd.DataFrame, questions: Mapping[str, str]) -> DrawnAnswers:
    """The draws of a table with ``prompt_id``, ``text``, optionally ``finish_reason`` and ``verdict``, in sampling order
    within a question; an answer without a text, or that no model ended, is missing.
    """
    answers: dict[str, list[AnswerText | None]] = {}
    judged: dict[str, np.ndarray] = {}
    missing: Counter[str] = Counter()
    for name, rows in table.groupby("prompt_id", sort=False):
        answers[str(name)] = []
        for text, kind in zip(rows["text"], missing_kinds(rows), strict=True):
            answer = None
            if kind is None and isinstance(text, str):
                answer = AnswerText(str(name), text)
            else:
                missing[kind or NO_TEXT] += 1
            answers[str(name)].append(answer)
        if "verdict" in rows:
            judged[str(name)] = rows["verdict"].to_numpy(dtype=np.float64)
    return DrawnAnswers(answers, questions, judged, missing=missing)


def _rows(dataset: Path) -> dict[str, Mapping[str, Json]]:
    """The rows of a dataset by id; a row without a question is shown by its id."""
    rows: dict[str, Mapping[str, Json]] = {}
    for line, row in read_jsonl(dataset):
        name = row.get("id")
        if not isinstance(name, str):
            raise BadRow(dataset, line, f"id: got {name!r}; must be text")
        if name in rows:
            problem = f"has the id {name!r} of an earlier row"
            raise BadRow(dataset, line, problem, "Give each question a unique id.")
        rows[name] = row
    return rows


def _verdicts(table: pd.DataFrame, file: Path, place: Path, column: str | None) -> np.ndarray:
    verdicts = read_table(place, required=["prompt_id", "sample"], ids=["prompt_id"])
    if "sample" not in table:
        raise BadFile(file, "has no column sample, which assigns verdicts to answers")
    names = [name for name in verdicts.columns if name not in ("prompt_id", "sample")]
    if not names:
        raise BadValue("--column", column, "a column of verdicts")
    if column not in (None, *names):
        raise BadValue("--column", column, f"one of {', '.join(names)}")
    name = column or names[0]
    values = numeric_column(verdicts, name, place, words=True)
    wrong = ~np.isin(values, (0, 1)) & ~np.isnan(values)
    if wrong.any():
        line = file_line(place, int(np.argmax(wrong)))
        problem = f"{name}: got {values[wrong][0]:g}; must be 0 (no leak), 1 (leak) or missing"
        raise BadRow(place, line, problem)
    samples = numeric_column(verdicts, "sample", place)
    verdict_of_sample = verdicts[["prompt_id"]].assign(sample=samples, verdict=values)
    joined = table.merge(verdict_of_sample, on=["prompt_id", "sample"], how="left")
    return joined["verdict"].to_numpy(dtype=np.float64)
