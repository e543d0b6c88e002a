"""The answers of a run that a person labels, and their order.

The draws of each question are halved in sampling order. The first half decides which answers a person labels: the distinct
answers in the order of the mass that they cover, until they cover the target. The second half is counted. A few random draws
of the second half whose text is not among those answers measure the judge's error on the rest.

The choice depends only on the draws, the target and the number of random draws, not on labels. A new run or another target
therefore has a new choice, which reuses the labels of the answers that both choices contain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadRow, BadValue
from lethe.evaluation.labels import Answer, Asked, Labels
from lethe.io.artifacts import GREEDY, read_references
from lethe.io.json_files import read_artifact, read_jsonl
from lethe.io.tables import file_line, numeric_column, read_table

if TYPE_CHECKING:
    import pandas as pd

SEED = 0  # for the order in which draws of the rest are labelled


@dataclass(frozen=True)
class Draws:
    """The answers of a run: the `Answer` of each draw, in order, by question; and the texts of the questions where known.

    ``verdicts`` holds the judge's verdict of each draw (1, 0 or NaN), in the same order; empty without a judge.
    """

    answers: Mapping[str, Sequence[Answer]]
    questions: Mapping[str, str]
    verdicts: Mapping[str, np.ndarray] = field(default_factory=dict)

    def first(self, prompt_id: str) -> Sequence[Answer]:
        """The half that decides which answers are labelled."""
        return self.answers[prompt_id][: self._half(prompt_id)]

    def second(self, prompt_id: str) -> Sequence[Answer]:
        """The half that the bounds count."""
        return self.answers[prompt_id][self._half(prompt_id) :]

    def second_verdicts(self, prompt_id: str) -> np.ndarray:
        """The verdicts of `second`."""
        return self.verdicts[prompt_id][self._half(prompt_id) :]

    def _half(self, prompt_id: str) -> int:
        return len(self.answers[prompt_id]) // 2


def read_draws(path: Path, dataset: Path | None, verdicts: Path | None, column: str | None) -> Draws:
    """Read a run: a folder of ``data/generations``, or a table with ``prompt_id``, ``text`` and optionally ``sample``."""
    file = path / "forget.parquet" if path.is_dir() else path
    about = path / "about.json"
    if path.is_dir() and about.is_file() and read_artifact(about).get("stop") == "sequential":
        raise BadFile(
            path,
            "holds a run with early stopping, and these bounds need a number of answers fixed beforehand",
            "Sample with `sample.stop: fixed`.",
        )
    if path.is_dir():
        refuse_references(path)
    table = read_table(file, required=["prompt_id", "text"], text=["prompt_id", "text"])
    if "sample" in table:
        table = table.assign(sample=numeric_column(table, "sample", file))
        # A table may be sorted by content; then its two halves would not be alike.
        table = table[table["sample"] != GREEDY].sort_values("sample", kind="stable")
    if table.empty:
        raise BadFile(file, "holds no sampled answers")
    table = table.reset_index(drop=True)
    if verdicts is not None:
        table["verdict"] = _verdicts(table, file, verdicts, column)
    return draws_of(table, _questions(dataset) if dataset is not None else {})


def refuse_references(generations: Path) -> None:
    """Refuse a language of prompts whose wordings ask for other answers: a label is of a question and an answer."""
    wordings = sorted({own.wording for found in read_references(generations).values() for own in found.values()})
    if wordings:
        raise BadFile(
            generations,
            f"holds answers to wordings that ask for an answer of their own ({', '.join(wordings)}), and a label belongs to "
            "one question",
            "Leave out these wordings of the language.",
        )


def draws_of(table: pd.DataFrame, questions: Mapping[str, str]) -> Draws:
    """The draws of a table with ``prompt_id``, ``text`` and optionally ``verdict``, in sampling order within a question."""
    answers, judged = {}, {}
    for name, rows in table.groupby("prompt_id", sort=False):
        texts = ["" if not isinstance(text, str) else text for text in rows["text"]]
        answers[str(name)] = [Answer(str(name), text) for text in texts]
        if "verdict" in rows:
            judged[str(name)] = rows["verdict"].to_numpy(dtype=np.float64)
    return Draws(answers, questions, judged)


def _questions(dataset: Path) -> dict[str, str]:
    """The questions of a dataset by id; a row without a question is shown by its id."""
    found: dict[str, str] = {}
    known: set[str] = set()
    for line, row in read_jsonl(dataset):
        if not isinstance(row.get("id"), str):
            raise BadRow(dataset, line, f"id: got {row.get('id')!r}; must be text")
        if row["id"] in known:
            raise BadRow(
                dataset,
                line,
                f"has the id {row['id']!r} of an earlier row",
                "Give each question a unique id.",
            )
        known.add(row["id"])
        if isinstance(row.get("question"), str):
            found[row["id"]] = row["question"]
    return found


def _verdicts(table: pd.DataFrame, file: Path, place: Path, column: str | None) -> np.ndarray:
    found = read_table(place, required=["prompt_id", "sample"], text=["prompt_id"])
    if "sample" not in table:
        raise BadFile(file, "has no column sample, which assigns verdicts to answers")
    names = [name for name in found.columns if name not in ("prompt_id", "sample")]
    if not names or (column is not None and column not in names):
        raise BadValue("--column", column, f"one of {', '.join(names)}" if names else "a column of verdicts")
    name = column or names[0]
    values = numeric_column(found, name, place)
    wrong = ~np.isin(values, (0, 1)) & ~np.isnan(values)
    if wrong.any():
        line = file_line(place, int(np.argmax(wrong)))
        raise BadRow(place, line, f"{name}: got {values[wrong][0]:g}; must be 0 (no leak), 1 (leak) or missing")
    own = found.assign(verdict=values, sample=numeric_column(found, "sample", place))[
        ["prompt_id", "sample", "verdict"]
    ]
    return table.merge(own, on=["prompt_id", "sample"], how="left")["verdict"].to_numpy(dtype=np.float64)


@dataclass(frozen=True)
class Ahead:
    """The next answer to label: the reason, the number of draws of its question with its text, and the labelled mass."""

    asked: Asked
    answer: Answer
    count: int
    draws: int
    covered: float


class Queue:
    """The order of labelling: by mass until the target is covered, then random draws of the rest."""

    def __init__(self, draws: Draws, target: float, rest: int):
        if not 0 < target <= 1:
            raise BadValue("--mass", target, "a number above 0 and at most 1")
        if rest < 0:
            raise BadValue("--rest", rest, "a whole number of at least 0")
        self.draws, self.target, self.rest = draws, target, rest
        self.counts: dict[Answer, int] = {}
        for name in draws.answers:
            for answer in draws.first(name):
                self.counts[answer] = self.counts.get(answer, 0) + 1
        self.total = sum(self.counts.values())
        self.chosen = self._chosen()
        counted = [(answer, place) for name in draws.answers for place, answer in enumerate(draws.second(name))]
        shuffled = (counted[place] for place in np.random.default_rng(SEED).permutation(len(counted)))
        inside = set(self.chosen)
        self.sampled: list[tuple[Answer, int]] = list(
            islice((one for one in shuffled if one[0] not in inside), rest)
        )

    def _chosen(self) -> list[Answer]:
        by_mass = sorted(self.counts, key=lambda one: -self.counts[one])  # stable: ties in the order of the file
        covered = np.cumsum([self.counts[answer] for answer in by_mass])
        return by_mass[: int((covered < self.target * self.total).sum()) + 1]

    def covered(self, labels: Labels) -> float:
        """The share of the first half's draws whose text was chosen and is labelled."""
        found = sum(self.counts[answer] for answer in self.chosen if answer in labels.known)
        return found / self.total if self.total else 1.0

    def ahead(self, labels: Labels) -> Ahead | None:
        """The next answer; None if all requested answers are labelled."""
        covered = self.covered(labels)
        for answer in self.chosen:
            if answer not in labels.known:
                draws = len(self.draws.first(answer.prompt_id))
                return Ahead(Asked("mass", self.target), answer, self.counts[answer], draws, covered)
        for answer, _ in self.sampled:
            if answer not in labels.known:
                draws = len(self.draws.second(answer.prompt_id))
                return Ahead(Asked("rest", self.target), answer, 1, draws, covered)
        return None

    def unused(self, labels: Labels) -> int:
        """The number of labels that this choice does not request: labels for another target or another run."""
        asked = {*self.chosen, *(answer for answer, _ in self.sampled)}
        return sum(answer not in asked for answer in labels.known)
