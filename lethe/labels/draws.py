"""The answers of a run that a person may label, by question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    """What a person compares an answer with.

    Attributes
    ----------
    reference
        The answer of the dataset, "" where there is none.
    keywords
        The words by which a leak is known.
    """

    reference: str = ""
    keywords: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Json]) -> Wanted:
        """Read a row of the dataset; values that are no texts are left out."""
        answer = row.get("answer")
        reference = answer if isinstance(answer, str) else ""
        keywords = row.get("keywords")
        texts: list[str] = []
        if isinstance(keywords, list):
            texts = [keyword for keyword in keywords if isinstance(keyword, str)]
        return cls(reference, tuple(texts))


@dataclass(frozen=True)
class DrawnAnswers:
    """The answers of a run that labels may be of.

    Attributes
    ----------
    answers
        By question, in sampling order; a missing answer is None.
    questions
        The text of each question, as far as the dataset is known.
    verdicts
        By question, (n,) those of the judge: 1, 0 or NaN; empty without a judge.
    wanted
        By question, what must not come.
    stated
        What the rows state of how they were drawn.
    missing
        The number of missing answers by kind.
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
    """Read a run that a person labels.

    Parameters
    ----------
    path
        A folder of ``data/generations``, or a table with ``prompt_id``, ``text`` and optionally ``sample``.
    dataset
        The rows of the questions, JSON lines; None: questions are shown by their ids.
    verdicts
        A table with ``prompt_id``, ``sample`` and columns of verdicts; None: there is no judge.
    column
        The column of the verdicts; None: the first one.

    Raises
    ------
    BadFile
        If the run was stopped early, asks for other answers than those of its questions, or has no sampled answer.
    BadRow
        If a row has no text for an answer, or repeats one.
    BadValue
        If there is no such column of verdicts.
    """
    file = path
    if path.is_dir():
        file = path / FORGET
    if file.name == FORGET:  # a run, whether its folder or its file is named
        about = file.with_name("about.json")
        if about.is_file() and read_artifact(about).get("stop") == "sequential":
            raise BadFile(path, STOPPED_EARLY, "Sample with `sample.stop: fixed`.")
        refuse_references(file.parent)

    # The sampled answers, in sampling order.
    table = read_table(file, required=["prompt_id", "text"], text=["text"], ids=["prompt_id"])
    every_answer = set()
    if "sample" in table:
        numbers = numeric_column(table, "sample", file).tolist()
        every_answer = set(zip(table["prompt_id"], numbers, strict=True))
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
        table["verdict"] = _verdicts(table, file, verdicts, column, every_answer)

    # What the dataset says of the questions.
    questions: dict[str, str] = {}
    wanted: dict[str, Wanted] = {}
    if dataset is not None:
        for name, row in _rows(dataset).items():
            wanted[name] = Wanted.of(row)
            text = row.get("question")
            if isinstance(text, str):
                questions[name] = text
        if not table["prompt_id"].isin(list(wanted)).any():
            problem = f"has none of the questions of {file}"
            raise BadFile(dataset, problem, "Name the dataset of these answers (--dataset).")

    # The texts of a table of our own state nothing of how they were drawn: a model may say one text again and again.
    about_draws = table.drop(columns="text") if is_ours(file) else table
    stated = facts_of_rows(about_draws, "prompt_id")
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
    """Refuse wordings that ask for other answers, and follow-up questions: a label is of a question and an answer.

    Raises `BadFile`.
    """
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
    """The draws of a table; an answer without a text, or that no model ended, is missing.

    Parameters
    ----------
    table
        With ``prompt_id``, ``text``, optionally ``finish_reason`` and ``verdict``, in sampling order within a question.
    questions
        The text of each question.
    """
    answers: dict[str, list[AnswerText | None]] = {}
    judged: dict[str, np.ndarray] = {}
    missing: Counter[str] = Counter()
    for prompt_id, rows in table.groupby("prompt_id", sort=False):
        name = str(prompt_id)
        answers[name] = []
        for text, kind in zip(rows["text"], missing_kinds(rows), strict=True):
            answer = None
            if kind is None and isinstance(text, str):
                answer = AnswerText(name, text)
            else:
                missing[kind or NO_TEXT] += 1
            answers[name].append(answer)
        if "verdict" in rows:
            judged[name] = rows["verdict"].to_numpy(dtype=np.float64)
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


def _verdicts(
    table: pd.DataFrame,
    file: Path,
    place: Path,
    column: str | None,
    every_answer: Collection[tuple[str, float]],
) -> np.ndarray:
    """(answers,) the verdict on each row of ``table``, which was read from ``file``: 1, 0, or NaN without one.

    ``place`` is the table of verdicts, and ``column`` names theirs. ``every_answer`` has the question and the sample of
    each answer of the file. Raises `BadFile`, `BadValue` or `BadRow`.
    """
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
    if verdicts.empty:
        raise BadFile(place, "holds no verdicts")
    verdict_of_sample = verdicts[["prompt_id"]].assign(sample=samples, verdict=values)
    repeats = verdict_of_sample.duplicated(["prompt_id", "sample"]).to_numpy()
    pairs = zip(verdicts["prompt_id"], samples.tolist(), strict=True)
    is_of_none = [pair not in every_answer and pair[1] != GREEDY for pair in pairs]
    wrong_by_problem = {
        f"is of no answer of {file}": np.array(is_of_none),
        "repeats the verdict on an answer": repeats,
    }
    for problem, rows in wrong_by_problem.items():
        if rows.any():
            first = int(np.argmax(rows))
            answer = f"prompt_id {verdicts['prompt_id'][first]}, sample {samples[first]:g}"
            raise BadRow(place, file_line(place, first), f"{problem}; got {answer}")
    joined = table.merge(verdict_of_sample, on=["prompt_id", "sample"], how="left")
    return joined["verdict"].to_numpy(dtype=np.float64)
