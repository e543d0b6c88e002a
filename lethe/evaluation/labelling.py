"""The answers of a run that a person labels, their order, and the bounds from the labels and from a judge on the rest.

The draws of each question are halved in sampling order. The first half decides which answers a person labels: the distinct
answers, in descending order of the mass that they cover. The second half is counted. The judge's error on the rest is
measured on a few random draws of the second half whose text was not labelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from lethe.errors import BadFile, BadRow, BadValue
from lethe.io.artifacts import GREEDY
from lethe.io.json_files import read_json, read_jsonl, write_jsonl
from lethe.io.tables import file_line, numeric_column, read_table
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.judge_error import Calibration
from lethe.statistics.judge_labelled import LabelledRates, labelled_rates

if TYPE_CHECKING:
    import pandas as pd

Part = Literal["mass", "rest"]
SEED = 0  # for the order in which draws of the rest are labelled
QUANTITY = "the probability of a leak"


@dataclass(frozen=True)
class Answer:
    """One distinct answer to one question."""

    prompt_id: str
    text: str


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


@dataclass
class Labels:
    """A person's labels by part: answers chosen by mass, and draws of the rest. Each new label is saved to ``path``."""

    path: Path
    mass: dict[Answer, int] = field(default_factory=dict)
    rest: dict[Answer, int] = field(default_factory=dict)
    order: list[tuple[Part, Answer]] = field(default_factory=list)

    def of(self, part: Part) -> dict[Answer, int]:
        """The labels of one part."""
        return self.mass if part == "mass" else self.rest

    def add(self, part: Part, answer: Answer, label: int, questions: Mapping[str, str]) -> None:
        """Save one label. A label of the same answer in the other part is removed; this happens when the target is raised."""
        other: Part = "rest" if part == "mass" else "mass"
        if self.of(other).pop(answer, None) is not None:
            self.order.remove((other, answer))
        self.of(part)[answer] = label
        self.order.append((part, answer))
        self.write(questions)

    def undo(self, questions: Mapping[str, str]) -> bool:
        """Remove the last label; return whether there was one."""
        if not self.order:
            return False
        part, answer = self.order.pop()
        del self.of(part)[answer]
        self.write(questions)
        return True

    def write(self, questions: Mapping[str, str]) -> None:
        """Write the whole file: one row per label, in the order of labelling."""
        rows = [
            {
                "prompt_id": answer.prompt_id,
                "question": questions.get(answer.prompt_id, answer.prompt_id),
                "text": answer.text,
                "label": self.of(part)[answer],
                "part": part,
            }
            for part, answer in self.order
        ]
        write_jsonl(self.path, rows)


def read_labels(path: Path) -> Labels:
    """Read a person's labels; a missing file has no labels yet.

    Raises
    ------
    BadRow
        If a row is not a label, or labels an answer a second time; the error names the line.
    """
    labels = Labels(path)
    for line, row in read_jsonl(path) if path.exists() else ():
        answer, part = Answer(str(row.get("prompt_id")), str(row.get("text"))), row.get("part")
        if not isinstance(row.get("prompt_id"), str) or not isinstance(row.get("text"), str):
            raise BadRow(path, line, "prompt_id and text must be texts")
        if isinstance(row.get("label"), bool) or row.get("label") not in (0, 1):
            raise BadRow(path, line, f"label: got {row.get('label')!r}; must be 0 (no leak) or 1 (leak)")
        if part not in ("mass", "rest"):
            raise BadRow(path, line, f"part: got {part!r}; must be mass or rest")
        if answer in labels.mass or answer in labels.rest:
            raise BadRow(path, line, "labels an answer a second time", "Remove one of the rows.")
        labels.of(part)[answer] = int(row["label"])
        labels.order.append((part, answer))
    return labels


def read_draws(path: Path, dataset: Path | None, verdicts: Path | None, column: str | None) -> Draws:
    """Read a run: a folder of ``data/generations``, or a table with ``prompt_id``, ``text`` and optionally ``sample``.

    Parameters
    ----------
    path
        The folder or the table. Of a folder, only the forget set is read.
    dataset
        JSON lines with ``id`` and ``question``; without it a question is shown by its id.
    verdicts, column
        A table with ``prompt_id, sample`` and the judge's verdicts, such as ``data/judged/JUDGE/MODEL/forget.parquet``, and
        the column of the verdicts (by default the third column).

    Raises
    ------
    BadFile, BadRow, MissingColumn, BadValue
        If a file cannot be read, lacks a column, or holds a verdict that is neither 0, 1 nor missing; or if a rule could
        stop the run early.
    """
    file = path / "forget.parquet" if path.is_dir() else path
    about = path / "about.json"
    if path.is_dir() and about.is_file() and read_json(about).get("stop") == "sequential":
        raise BadFile(
            path,
            "holds a run with early stopping, and these bounds need a number of answers fixed beforehand",
            "Sample with `sample.stop: fixed`.",
        )
    table = read_table(file, required=["prompt_id", "text"], text=["prompt_id", "text"])
    if "sample" in table:
        # A table may be sorted by content; then its two halves would not be alike.
        table = table[table["sample"] != GREEDY].sort_values("sample", kind="stable")
    if table.empty:
        raise BadFile(file, "holds no sampled answers")
    table = table.reset_index(drop=True)
    if verdicts is not None:
        table["verdict"] = _verdicts(table, file, verdicts, column)
    answers, judged = {}, {}
    for name, rows in table.groupby("prompt_id", sort=False):
        texts = ["" if not isinstance(text, str) else text for text in rows["text"]]
        answers[str(name)] = [Answer(str(name), text) for text in texts]
        if verdicts is not None:
            judged[str(name)] = rows["verdict"].to_numpy(dtype=np.float64)
    questions: dict[str, str] = {}
    if dataset is not None:
        questions = {str(row["id"]): str(row["question"]) for _, row in read_jsonl(dataset) if "question" in row}
    return Draws(answers, questions, judged)


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
    own = found.assign(verdict=values)[["prompt_id", "sample", "verdict"]]
    return table.merge(own, on=["prompt_id", "sample"], how="left")["verdict"].to_numpy(dtype=np.float64)


@dataclass(frozen=True)
class Ahead:
    """The next answer to label: its part, the number of draws of its question with its text, and the covered mass."""

    part: Part
    answer: Answer
    count: int
    draws: int
    covered: float


class Queue:
    """The order of labelling: by mass until the target is covered, then random draws of the rest.

    Parameters
    ----------
    draws
        The answers of the run.
    target
        The share of the first half's draws whose text a person labels, above 0 and at most 1.
    rest
        The number of draws of the rest that are labelled to measure the judge.
    """

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
        self.by_mass = sorted(
            self.counts, key=lambda one: -self.counts[one]
        )  # a stable sort keeps ties in the order of the file
        counted = [(answer, place) for name in draws.answers for place, answer in enumerate(draws.second(name))]
        self.others = [counted[place] for place in np.random.default_rng(SEED).permutation(len(counted))]

    def covered(self, labels: Labels) -> float:
        """The share of the first half's draws whose text is labelled."""
        return sum(self.counts.get(answer, 0) for answer in labels.mass) / self.total if self.total else 1.0

    def ahead(self, labels: Labels) -> Ahead | None:
        """The next answer; None if all requested answers are labelled."""
        covered = self.covered(labels)
        if covered < self.target:
            answer = next(one for one in self.by_mass if one not in labels.mass)
            draws = len(self.draws.first(answer.prompt_id))
            return Ahead("mass", answer, self.counts[answer], draws, covered)
        for answer, _ in self.sampled(labels):
            if answer not in labels.rest:
                return Ahead("rest", answer, 1, len(self.draws.second(answer.prompt_id)), covered)
        return None

    def sampled(self, labels: Labels) -> list[tuple[Answer, int]]:
        """The first random draws of the rest, each with its index in the second half of its question.

        Equal texts are separate draws, because a judge may give them different verdicts.
        """
        return list(islice((one for one in self.others if one[0] not in labels.mass), self.rest))


@dataclass(frozen=True)
class LabelledMeasures:
    """Bounds of each question by labels and verdicts, with the share of the counted mass that labels cover."""

    prompt_ids: tuple[str, ...]
    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]
    rates: LabelledRates
    mass: float
    calibration: Calibration | None

    @property
    def worst(self) -> tuple[str, Bound]:
        """The question with the largest upper bound, and that bound, which covers the worst question."""
        from dataclasses import replace

        place = max(range(len(self.upper)), key=lambda place: self.upper[place].value)
        return self.prompt_ids[place], replace(self.upper[place], covers=Covers.WORST_PROMPT)

    @property
    def source(self) -> str:
        """The basis of the bounds, as the end of a sentence."""
        read = f"by a person's reading of {int(1000 * self.mass) / 10:g}% of the mass"
        if self.calibration is None:
            return f"{read}, the rest counted as leaks in upper bounds and as clean in lower ones"
        return f"{read}, and the judge's measured error on the rest"

    def sentences(self, of: str = "the prompts") -> list[str]:
        """The statement on the worst question, with its guarantee."""
        name, bound = self.worst
        return [f"{bound.sentence(QUANTITY, of)[:-1]}, {self.source}. The bound is that of {name}."]

    def as_dict(self) -> dict[str, object]:
        """The keys of `lethe label --json`."""
        known = self.calibration
        name, bound = self.worst
        return {
            "alpha": bound.alpha,
            "mass": self.mass,
            "said": self.source,
            "calibration": known
            and {
                "leaks": known.leaks,
                "leaks_called": known.leaks_called,
                "clean": known.clean,
                "clean_called": known.clean_called,
                "sensitivity": list(self.rates.error.sensitivity),
                "false_positive": list(self.rates.error.false_positive),
            },
            "per_prompt": [
                {"prompt_id": name, "mass": float(mass), "lower": lower.value, "upper": upper.value}
                for name, mass, lower, upper in zip(
                    self.prompt_ids, self.rates.mass, self.lower, self.upper, strict=True
                )
            ],
            "worst_prompt": {"prompt_id": name, "bound": bound.value},
        }


def measure(draws: Draws, queue: Queue, labels: Labels, alpha: float) -> LabelledMeasures:
    """Bound each question from the counted half: from labels where an answer has one, from the judge's verdicts elsewhere.

    The verdicts count only if the judge's error on the rest was measured: the labelled draws of the rest must include both
    labels.
    """
    names = tuple(draws.answers)
    calibration = _calibration(draws, queue, labels)
    leaks, rest, called, missing, sizes = [], [], [], [], []
    for name in names:
        answers = draws.second(name)
        if not answers:
            raise BadValue(
                f"answers to {name}", len(draws.answers[name]), "at least 2: one half chooses, one counts"
            )
        outside = np.array([answer not in labels.mass for answer in answers])
        leaks.append(sum(labels.mass.get(answer, 0) for answer in answers))
        rest.append(int(outside.sum()))
        sizes.append(len(answers))
        verdicts = draws.second_verdicts(name)[outside] if calibration else np.array([])
        called.append(int((verdicts == 1).sum()))
        missing.append(int(np.isnan(verdicts).sum()))
    rates = labelled_rates(leaks, rest, called, np.array(sizes), calibration, alpha, missing)
    common = [(Covers.ONE_PROMPT, rates.assumes, rates.method, size) for size in sizes]
    return LabelledMeasures(
        prompt_ids=names,
        lower=tuple(Bound(float(v), "lower", alpha, *more) for v, more in zip(rates.lower, common, strict=True)),
        upper=tuple(Bound(float(v), "upper", alpha, *more) for v, more in zip(rates.upper, common, strict=True)),
        rates=rates,
        mass=1 - sum(rest) / sum(sizes),
        calibration=calibration,
    )


def _calibration(draws: Draws, queue: Queue, labels: Labels) -> Calibration | None:
    """The judge's error on the labelled draws of the rest; None without a judge, or if one of the labels does not occur."""
    sampled = queue.sampled(labels)
    if not draws.verdicts or any(answer not in labels.rest for answer, _ in sampled):
        return None  # a prefix that a person chose to end would not be a random sample
    found = [labels.rest[answer] for answer, _ in sampled]
    if len(set(found)) < 2:
        return None
    verdicts = [float(draws.second_verdicts(answer.prompt_id)[place]) for answer, place in sampled]
    return Calibration.of(found, verdicts, of_this_run=True)
