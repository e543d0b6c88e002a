"""Bounds from a person's labels: which answers are labelled, in which order, and what the labels prove."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lethe.errors import BadFile, BadRow, BadValue, shortened
from lethe.io.artifacts import GREEDY, read_references
from lethe.io.atomic import SCHEMA_VERSION
from lethe.io.json_files import FIRST, KEY, read_artifact, read_jsonl, write_jsonl
from lethe.io.tables import file_line, numeric_column, read_table
from lethe.statistics.bound import Bound, Covers, rounded
from lethe.statistics.counts import (
    AT_RANDOM,
    LABELLED,
    LABELLED_METHOD,
    METHOD_AT_RANDOM,
    METHOD_REST,
    WITH_REST,
    labelled_average,
    labelled_rates,
    random_labels,
    rate_bounds,
)
from lethe.statistics.judge_error import Calibration
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA

if TYPE_CHECKING:
    import pandas as pd

    from lethe.results.table import Rows

Part = Literal["mass", "rest"]


@dataclass(frozen=True)
class Answer:
    """One distinct answer to one question."""

    prompt_id: str
    text: str


@dataclass(frozen=True)
class Asked:
    """The reason for a label: the mass or the rest, and the target (None in files of earlier releases)."""

    part: Part
    target: float | None = None


@dataclass
class Labels:
    """Labels by answer, in the order of labelling; each new label is saved to ``path``.

    A label is a fact about a question and a text. It holds for every run in which the text occurs.
    """

    path: Path
    known: dict[Answer, int] = field(default_factory=dict)
    asked: dict[Answer, Asked] = field(default_factory=dict)

    def add(self, answer: Answer, label: int, asked: Asked, questions: Mapping[str, str]) -> None:
        """Add one label and write the file."""
        self.known[answer] = label
        self.asked[answer] = asked
        self.write(questions)

    def undo(self, questions: Mapping[str, str]) -> bool:
        """Remove the last label; return whether there was one."""
        if not self.known:
            return False
        answer, _ = self.known.popitem()
        del self.asked[answer]
        self.write(questions)
        return True

    @property
    def targets(self) -> list[float]:
        """The targets under which labels were requested, in order."""
        found = [asked.target for asked in self.asked.values() if asked.target is not None]
        return list(dict.fromkeys(found))

    def write(self, questions: Mapping[str, str]) -> None:
        """Write the whole file: one row per label, in the order of labelling."""
        write_jsonl(self.path, [self._row(answer, questions) for answer in self.known])

    def _row(self, answer: Answer, questions: Mapping[str, str]) -> dict[str, object]:
        asked = self.asked[answer]
        row = {
            "prompt_id": answer.prompt_id,
            "question": questions.get(answer.prompt_id, answer.prompt_id),
            "text": answer.text,
            "label": self.known[answer],
            "part": asked.part,
            KEY: SCHEMA_VERSION,
        }
        return row if asked.target is None else row | {"target": asked.target}


def read_labels(path: Path) -> Labels:
    """Read a person's labels; a missing file has no labels yet."""
    labels = Labels(path)
    for line, row in read_jsonl(path) if path.exists() else ():
        if (version := row.get(KEY, FIRST)) != SCHEMA_VERSION:
            problem = (
                f"schema: got {shortened(version)}; must be {SCHEMA_VERSION}, which this release of Lethe reads"
            )
            raise BadRow(path, line, problem, "Read the labels with the release that wrote them.")
        answer, asked = _answer(path, line, row), _asked(path, line, row)
        if isinstance(row.get("label"), bool) or row.get("label") not in (0, 1):
            raise BadRow(path, line, f"label: got {row.get('label')!r}; must be 0 (no leak) or 1 (leak)")
        if answer in labels.known:
            raise BadRow(path, line, "labels an answer a second time", "Remove one of the rows.")
        labels.known[answer] = int(row["label"])
        labels.asked[answer] = asked
    return labels


def _answer(path: Path, line: int, row: Mapping[str, Any]) -> Answer:
    prompt_id, text = row.get("prompt_id"), row.get("text")
    if not isinstance(prompt_id, str) or not isinstance(text, str):
        raise BadRow(path, line, "prompt_id and text must be texts")
    return Answer(prompt_id, text)


def _asked(path: Path, line: int, row: Mapping[str, Any]) -> Asked:
    part, target = row.get("part"), row.get("target")
    if part not in ("mass", "rest"):
        raise BadRow(path, line, f"part: got {part!r}; must be mass or rest")
    if target is None:
        return Asked(part)
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target <= 1:
        raise BadRow(path, line, f"target: got {target!r}; must be a number above 0 and at most 1")
    return Asked(part, float(target))


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


QUANTITY = "the probability of a leak"


@dataclass(frozen=True)
class LabelledMeasures:
    """Bounds of each question by labels alone, with the share of the counted mass that labels cover.

    ``mass_of`` is that share for each question. ``judge`` says whether a judge was asked about the rest, and ``calibration``
    is its measured error, None where it could not be measured: it enters no bound. ``pool`` bounds the average over the
    questions, None where their numbers of draws differ. ``labels`` counts the labelled answers, and ``leaks`` the draws of
    the run, counted or not, that a person calls a leak. ``targets`` are the targets under which labels were asked.
    ``counts`` are those of the labels: leaks, draws, and draws without a label. ``of_rest`` are the labelled leaks among the
    random draws of the rest, and these draws; None where none were planned.
    """

    prompt_ids: tuple[str, ...]
    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]
    pool: tuple[Bound, Bound] | None
    mass_of: tuple[float, ...]
    mass: float
    judge: bool
    calibration: Calibration | None
    labels: int
    leaks: int
    finished: bool
    target: float
    targets: tuple[float, ...]
    counts: Mapping[str, Mapping[str, int]]
    of_rest: tuple[int, int] | None

    @property
    def worst(self) -> tuple[str, Bound]:
        """The question with the largest upper bound, and that bound, which covers the worst question."""
        place = max(range(len(self.upper)), key=lambda place: self.upper[place].value)
        return self.prompt_ids[place], replace(self.upper[place], covers=Covers.WORST_PROMPT)

    @property
    def source(self) -> str:
        """The basis of the bounds, as the end of a sentence."""
        read = f"by a person's reading of {float(rounded(100 * self.mass, 1, 'lower')):g}% of the mass"
        drawn = (
            f"and of {self.of_rest[1]:,} random draws of the rest, which otherwise"
            if self.of_rest and self.of_rest[1]
            else ", the rest"
        )
        return f"{read} {drawn} counts as leaks in upper bounds and as clean in lower ones".replace(" ,", ",")

    def to_rows(self, rows: Rows) -> None:
        """Add the rows of each question and of all.

        The largest of several lower bounds has no valid level, so the lower bound of the worst is that of the average.
        """
        each = zip(self.prompt_ids, self.lower, self.upper, self.mass_of, strict=True)
        for name, lower, upper, mass in each:
            evidence = self.counts[name]
            rows.add(
                "question", "leak", "labelled", None, lower, upper, item=name, split="forget", evidence=evidence
            )
            rows.add("question", "mass", "labelled", mass, item=name, split="forget")
        worst = self.worst[1]
        if self.pool:
            lower, upper = self.pool
            least = replace(lower, covers=Covers.WORST_PROMPT)
            rows.add("model", "leak_worst", "labelled", None, least, worst, split="forget")
            rows.add("model", "leak", "labelled", None, lower, upper, split="forget")
        else:
            rows.add("model", "leak_worst", "labelled", None, None, worst, split="forget")
        counts = {
            "mass": self.mass,
            "labels": self.labels,
            "leaks": self.leaks,
            "judge": self.calibration is not None,
        }
        for quantity, value in counts.items():
            rows.add("model", quantity, "labelled", value, split="forget")

    def sentences(self, of: str = "the prompts") -> list[str]:
        """The statements on all questions."""
        name, bound = self.worst
        told = [f"{bound.sentence(QUANTITY, of)[:-1]}, {self.source}. The bound is that of {name}."]
        if self.pool:
            told.append(f"{self.pool[1].sentence(QUANTITY, of)[:-1]}, {self.source}.")
        if not self.finished:
            told.append(
                f"Labelling is not finished: some of the answers that cover {_percent(self.target)} of the mass, or some of "
                "the random draws of the rest, have no label."
            )
        elif known := self.calibration:
            told.append(
                f"On the random draws of the rest the judge called {known.leaks_called} of {known.leaks} leaks a leak and "
                f"{known.clean_called} of {known.clean} clean answers; no bound rests on the judge."
            )
        others = [target for target in self.targets if target != self.target]
        if others:
            told.append(
                f"Labels were also requested under the target {', '.join(map(_percent, others))}; the target is now "
                f"{_percent(self.target)}. The bounds hold only for a target fixed before a bound was seen."
            )
        return told

    def as_dict(self) -> dict[str, object]:
        """The keys of `lethe label --json`."""
        known = self.calibration
        name, bound = self.worst
        error = known and known.error(bound.alpha)
        return {
            "alpha": bound.alpha,
            "mass": self.mass,
            "target": self.target,
            "earlier_targets": [target for target in self.targets if target != self.target],
            "finished": self.finished,
            "said": self.source,
            "calibration": known
            and {
                "leaks": known.leaks,
                "leaks_called": known.leaks_called,
                "clean": known.clean,
                "clean_called": known.clean_called,
                "sensitivity": error and list(error.sensitivity),
                "false_positive": error and list(error.false_positive),
            },
            "per_prompt": [
                {"prompt_id": name, "mass": mass, "lower": lower.value, "upper": upper.value}
                for name, lower, upper, mass in zip(
                    self.prompt_ids, self.lower, self.upper, self.mass_of, strict=True
                )
            ],
            "worst_prompt": {"prompt_id": name, "bound": bound.value},
            "pooled": self.pool and {"lower": self.pool[0].value, "upper": self.pool[1].value},
        }


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def measure(draws: Draws, queue: Queue, labels: Labels, alpha: float) -> LabelledMeasures:
    """Bound each question from the counted half by labels, and the average with the labelled draws of the rest too."""
    judge = bool(draws.verdicts) and queue.rest > 0
    finished = queue.ahead(labels) is None
    own = {answer: labels.known[answer] for answer in queue.chosen if answer in labels.known}
    table = np.array([_counted(draws, name, own) for name in draws.answers], dtype=np.float64)
    leaks, rest, n = table.T
    of_rest = None
    if queue.rest > 0:
        drawn = [labels.known[answer] for answer, _ in queue.sampled] if finished else []
        of_rest = sum(drawn), len(drawn)
    lower, upper = labelled_rates(leaks, rest, n, alpha)
    pool = None
    if (n == n[0]).all() and alpha <= LARGEST_POOLED_ALPHA:
        ends = labelled_average(leaks, rest, n, of_rest, alpha)
        guarantee = (LABELLED_METHOD, LABELLED) if of_rest is None else (METHOD_REST, WITH_REST)
        pool = _bounds(*ends, alpha, Covers.AVERAGE, *guarantee, int(n.sum()))
    each = [
        _bounds(low, high, alpha, Covers.ONE_PROMPT, LABELLED_METHOD, LABELLED, int(size))
        for low, high, size in zip(lower.tolist(), upper.tolist(), n, strict=True)
    ]
    return LabelledMeasures(
        prompt_ids=tuple(draws.answers),
        lower=tuple(low for low, _ in each),
        upper=tuple(high for _, high in each),
        pool=pool,
        mass_of=tuple((1 - rest / n).tolist()),
        mass=float(1 - rest.sum() / n.sum()),
        judge=judge,
        calibration=_calibration(draws, queue, labels) if judge and finished else None,
        labels=len(own) + len({answer for answer, _ in queue.sampled} & labels.known.keys()),
        leaks=sum(labels.known.get(answer, 0) for answers in draws.answers.values() for answer in answers),
        finished=finished,
        target=queue.target,
        targets=tuple(labels.targets),
        counts={
            name: dict(zip(("leaks", "missing", "n"), map(int, row), strict=True))
            for name, row in zip(draws.answers, table, strict=True)
        },
        of_rest=of_rest,
    )


def _counted(draws: Draws, name: str, own: Mapping[Answer, int]) -> tuple[int, int, int]:
    """Of one question's second half: labelled leaks, draws without a label, and all draws."""
    answers = draws.second(name)
    if not answers:
        raise BadValue(f"answers to {name}", len(draws.answers[name]), "at least 2: one half chooses, one counts")
    return (
        sum(own.get(answer, 0) for answer in answers),
        sum(answer not in own for answer in answers),
        len(answers),
    )


def _bounds(
    lower: float, upper: float, alpha: float, covers: Covers, method: str, assumes: str, n: int
) -> tuple[Bound, Bound]:
    rest = (alpha, covers, assumes, method, n)
    return Bound(lower, "lower", *rest), Bound(upper, "upper", *rest)


def _calibration(draws: Draws, queue: Queue, labels: Labels) -> Calibration | None:
    """The judge's error on the labelled draws of the rest; None if one of the labels does not occur."""
    found = [labels.known[answer] for answer, _ in queue.sampled]
    if len(set(found)) < 2:
        return None
    verdicts = [float(draws.second_verdicts(answer.prompt_id)[place]) for answer, place in queue.sampled]
    return Calibration.of(found, verdicts, of_this_run=True)


Ends = tuple[Bound, Bound]
BY_LABELS = "the true probability of a leak, by labels alone,"


@dataclass(frozen=True)
class RandomLabels:
    """Both ends of the average leak probability, and of each prompt with labels of its own."""

    pool: Ends
    each: Mapping[str, Ends]

    def as_dict(self, prompt_id: str | None = None) -> dict[str, object] | None:
        """The entry ``labelled`` of `lethe bounds --json`: of a prompt, null without labels, or of the pool."""
        ends = self.pool if prompt_id is None else self.each.get(prompt_id)
        if ends is None:
            return None
        lower, upper = ends
        return {"lower": lower.value, "upper": upper.value, "n": upper.n, "alpha": upper.alpha}

    def sentences(self, of: str) -> list[str]:
        """Both ends of the average, each with its guarantee."""
        return [end.sentence(BY_LABELS, of) for end in self.pool]


def read_random_labels(path: str | os.PathLike[str], prompts: Collection[str], alpha: float) -> RandomLabels:
    """Read labels 0 and 1 of draws (``prompt_id, sample, label``), and bound what they are labels of."""
    table = read_table(path, required=["prompt_id", "sample", "label"], text=["prompt_id"])
    if table.empty:
        raise BadFile(path, "holds no labels")
    labels, names = numeric_column(table, "label", path), table["prompt_id"].astype(str).to_numpy()
    known = np.isin(names, list(prompts))
    for wrong, problem in (
        (~np.isin(labels, (0, 1)), "label must be 0 (no leak) or 1 (leak)"),
        (~known, "prompt_id is none of the scores'"),
        (table.duplicated(["prompt_id", "sample"]).to_numpy(), "labels a draw a second time"),
    ):
        if wrong.any():
            raise BadRow(path, file_line(path, int(np.argmax(wrong))), problem)
    each = {}
    for name in dict.fromkeys(names.tolist()):
        own = labels[names == name]
        lower, upper = rate_bounds([own.sum()], [len(own)], alpha)
        each[name] = _bounds(
            float(lower[0]), float(upper[0]), alpha, Covers.ONE_PROMPT, METHOD_AT_RANDOM, AT_RANDOM, len(own)
        )
    ends = random_labels(int(labels.sum()), len(labels), alpha)
    return RandomLabels(_bounds(*ends, alpha, Covers.AVERAGE, METHOD_AT_RANDOM, AT_RANDOM, len(labels)), each)
