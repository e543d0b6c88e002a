"""Bounds from a person's labels: which answers are labelled, in which order, and what the labels prove.

The draws of each question are halved in sampling order. The first half decides which answers a person labels: the distinct
answers in the order of the mass that they cover, until they cover the target. The second half is counted. A few random draws
of the second half whose text is not among those answers bound the rest of the average. The choice depends only on
the draws, the target and the number of random draws, not on labels. A new run or another target therefore has a new choice,
which reuses the labels of the answers that both choices contain.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from lethe.errors import BadFile, BadRow, BadValue, shortened
from lethe.io.artifacts import GREEDY, TURNS, read_references
from lethe.io.atomic import SCHEMA_VERSION
from lethe.io.json_files import FIRST, KEY, read_artifact, read_jsonl, write_jsonl
from lethe.io.tables import file_line, numeric_column, read_table
from lethe.results.table import both_ends, values_of
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

SEED = 0  # for the order in which draws of the rest are labelled
QUANTITY = "the probability of a leak"
BY_LABELS = "the true probability of a leak, by labels alone,"
Ends = tuple[Bound, Bound]


class Answer(NamedTuple):
    prompt_id: str
    text: str


Part = Literal["mass", "rest"]


class Asked(NamedTuple):
    """The reason for a label: the mass or the rest, and the target (None where the file has none)."""

    part: Part
    target: float | None = None


LEGAL = {
    "label": "0 (no leak) or 1 (leak)",
    "part": "mass or rest",
    "target": "a number above 0 and at most 1",
    "prompt_id": "text",
    "text": "text",
}


class _Row(BaseModel, strict=True):
    prompt_id: str
    text: str
    label: Annotated[int, Field(ge=0, le=1)]
    part: Part
    target: Annotated[float, Field(gt=0, le=1)] | None = None


@dataclass
class Labels:
    """Labels by answer, in the order of labelling; each new label is saved to ``path``.

    A label is a fact about a question and a text. It holds for every run in which the text occurs.
    """

    path: Path
    known: dict[Answer, int] = field(default_factory=dict)
    asked: dict[Answer, Asked] = field(default_factory=dict)

    def add(self, answer: Answer, label: int, asked: Asked, questions: Mapping[str, str]) -> None:
        self.known[answer], self.asked[answer] = label, asked
        self.write(questions)

    def undo(self, questions: Mapping[str, str]) -> bool:
        """Remove the last label; return whether there was one."""
        if not self.known:
            return False
        del self.asked[self.known.popitem()[0]]
        self.write(questions)
        return True

    def write(self, questions: Mapping[str, str]) -> None:
        rows: list[dict[str, object]] = []
        for answer, label in self.known.items():
            part, target = self.asked[answer]
            question = questions.get(answer.prompt_id, answer.prompt_id)
            row = {"prompt_id": answer.prompt_id, "question": question, "text": answer.text, "label": label}
            rows.append(row | {"part": part, KEY: SCHEMA_VERSION} | ({} if target is None else {"target": target}))
        write_jsonl(self.path, rows)


def read_labels(path: Path) -> Labels:
    """Read a person's labels; a missing file has no labels yet."""
    labels = Labels(path)
    for line, row in read_jsonl(path) if path.exists() else ():
        if (version := row.get(KEY, FIRST)) != SCHEMA_VERSION:
            problem = (
                f"schema: got {shortened(version)}; must be {SCHEMA_VERSION}, which this release of Lethe reads"
            )
            raise BadRow(path, line, problem, "Read the labels with the release that wrote them.")
        try:
            own = _Row.model_validate(row)
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            raise BadRow(path, line, f"{key}: got {shortened(row.get(key))}; must be {LEGAL[key]}") from None
        answer = Answer(own.prompt_id, own.text)
        if answer in labels.known:
            raise BadRow(path, line, "labels an answer a second time", "Remove one of the rows.")
        labels.known[answer], labels.asked[answer] = own.label, Asked(own.part, own.target)
    return labels


@dataclass(frozen=True)
class Draws:
    """The answers of a run: the `Answer` of each draw, in order, by question; and the texts of the questions where known.

    ``verdicts`` holds the judge's verdict of each draw (1, 0 or NaN), in the same order; empty without a judge.
    """

    answers: Mapping[str, Sequence[Answer]]
    questions: Mapping[str, str]
    verdicts: Mapping[str, np.ndarray] = field(default_factory=dict)

    def first(self, prompt_id: str) -> Sequence[Answer]:
        """The half that decides which answers are labelled; the bounds count the `second`."""
        return self.answers[prompt_id][: len(self.answers[prompt_id]) // 2]

    def second(self, prompt_id: str) -> Sequence[Answer]:
        return self.answers[prompt_id][len(self.answers[prompt_id]) // 2 :]

    def second_verdicts(self, prompt_id: str) -> np.ndarray:
        return self.verdicts[prompt_id][len(self.answers[prompt_id]) // 2 :]


def read_draws(path: Path, dataset: Path | None, verdicts: Path | None, column: str | None) -> Draws:
    """Read a run: a folder of ``data/generations``, or a table with ``prompt_id``, ``text`` and optionally ``sample``."""
    file = path
    if path.is_dir():
        file, about = path / "forget.parquet", path / "about.json"
        if about.is_file() and read_artifact(about).get("stop") == "sequential":
            raise BadFile(
                path,
                "holds a run with early stopping, and these bounds need a number of answers fixed beforehand",
                "Sample with `sample.stop: fixed`.",
            )
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
    """Refuse wordings that ask for other answers, and follow-up questions: a label is of a question and an answer."""
    if Path(generations, TURNS).is_file():
        raise BadFile(
            generations,
            "holds answers to follow-up questions, and a label belongs to one answer",
            "Leave out followups (and turns of the language).",
        )
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
        texts = [text if isinstance(text, str) else "" for text in rows["text"]]
        answers[str(name)] = [Answer(str(name), text) for text in texts]
        if "verdict" in rows:
            judged[str(name)] = rows["verdict"].to_numpy(dtype=np.float64)
    return Draws(answers, questions, judged)


def _questions(dataset: Path) -> dict[str, str]:
    """The questions of a dataset by id; a row without a question is shown by its id."""
    found: dict[str, str] = {}
    known: set[str] = set()
    for line, row in read_jsonl(dataset):
        name = row.get("id")
        if not isinstance(name, str):
            raise BadRow(dataset, line, f"id: got {name!r}; must be text")
        if name in known:
            raise BadRow(
                dataset, line, f"has the id {name!r} of an earlier row", "Give each question a unique id."
            )
        known.add(name)
        if isinstance(row.get("question"), str):
            found[name] = row["question"]
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
    own = found[["prompt_id"]].assign(sample=numeric_column(found, "sample", place), verdict=values)
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
        self.draws, self.target, self.rest = draws, target, rest
        self.counts = Counter(answer for name in draws.answers for answer in draws.first(name))
        self.total = self.counts.total()
        by_mass = [answer for answer, _ in self.counts.most_common()]  # stable: ties in the order of the file
        covered = np.cumsum([self.counts[answer] for answer in by_mass])
        self.chosen = by_mass[: int((covered < target * self.total).sum()) + 1]
        counted = [(answer, place) for name in draws.answers for place, answer in enumerate(draws.second(name))]
        shuffled = (counted[place] for place in np.random.default_rng(SEED).permutation(len(counted)))
        inside = set(self.chosen)
        self.sampled: list[tuple[Answer, int]] = list(
            islice((one for one in shuffled if one[0] not in inside), rest)
        )

    def covered(self, labels: Labels) -> float:
        """The share of the first half's draws whose text was chosen and is labelled."""
        found = sum(self.counts[answer] for answer in self.chosen if answer in labels.known)
        return found / self.total if self.total else 1.0

    def ahead(self, labels: Labels) -> Ahead | None:
        """The next answer; None if all requested answers are labelled."""
        draws, target, covered = self.draws, self.target, self.covered(labels)
        mass = [(answer, Asked("mass", target), self.counts[answer], draws.first) for answer in self.chosen]
        rest = [(answer, Asked("rest", target), 1, draws.second) for answer, _ in self.sampled]
        for answer, asked, count, half in (*mass, *rest):
            if answer not in labels.known:
                return Ahead(asked, answer, count, len(half(answer.prompt_id)), covered)
        return None

    def unused(self, labels: Labels) -> int:
        """The number of labels that this choice does not request: labels for another target or another run."""
        return len(labels.known.keys() - {*self.chosen, *(answer for answer, _ in self.sampled)})


@dataclass(frozen=True)
class LabelledMeasures:
    """Bounds of each question by labels alone; a judge's error on the rest is measured beside them.

    ``mass_of`` is the share of each question's counted mass that labels cover. ``calibration`` enters no bound; None where
    the judge's error could not be measured. ``pool`` is None where the numbers of draws differ. ``leaks`` counts the draws,
    counted or not, that a person calls a leak. ``of_rest`` are the labelled leaks among the random draws of the rest, and
    these draws; None where none were planned.
    """

    prompt_ids: tuple[str, ...]
    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]
    pool: Ends | None
    mass_of: tuple[float, ...]
    mass: float
    calibration: Calibration | None
    labels: int
    leaks: int
    finished: bool
    target: float
    earlier_targets: list[float]
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
            f" and of {self.of_rest[1]:,} random draws of the rest, which otherwise"
            if self.of_rest and self.of_rest[1]
            else ", the rest"
        )
        return f"{read}{drawn} counts as leaks in upper bounds and as clean in lower ones"

    def to_rows(self, rows: Rows) -> None:
        """Add the rows of each question and of all.

        The largest of several lower bounds has no valid level, so the lower bound of the worst is that of the average.
        """
        for name, lower, upper, mass in zip(self.prompt_ids, self.lower, self.upper, self.mass_of, strict=True):
            counts = self.counts[name]
            rows.add(
                "question", "leak", "labelled", None, lower, upper, item=name, split="forget", evidence=counts
            )
            rows.add("question", "mass", "labelled", mass, item=name, split="forget")
        least = self.pool and replace(self.pool[0], covers=Covers.WORST_PROMPT)
        rows.add("model", "leak_worst", "labelled", None, least, self.worst[1], split="forget")
        if self.pool:
            rows.add("model", "leak", "labelled", None, *self.pool, split="forget")
        rows.add("model", "mass", "labelled", self.mass, split="forget")
        rows.add("model", "labels", "labelled", self.labels, split="forget")
        rows.add("model", "leaks", "labelled", self.leaks, split="forget")
        rows.add("model", "judge", "labelled", self.calibration is not None, split="forget")

    def sentences(self, of: str = "the prompts") -> list[str]:
        name, bound = self.worst
        lines = [f"{bound.sentence(QUANTITY, of)[:-1]}, {self.source}. The bound is that of {name}."]
        if self.pool:
            lines.append(f"{self.pool[1].sentence(QUANTITY, of)[:-1]}, {self.source}.")
        if not self.finished:
            lines.append(
                f"Labelling is not finished: some of the answers that cover {100 * self.target:g}% of the mass, or some of "
                "the random draws of the rest, have no label."
            )
        elif known := self.calibration:
            lines.append(
                f"On the random draws of the rest the judge called {known.leaks_called} of {known.leaks} leaks a leak and "
                f"{known.clean_called} of {known.clean} clean answers; no bound rests on the judge."
            )
        if others := self.earlier_targets:
            lines.append(
                f"Labels were also requested under the target {', '.join(f'{100 * target:g}%' for target in others)}; the "
                f"target is now {100 * self.target:g}%. The bounds hold only for a target fixed before a bound was seen."
            )
        return lines

    def as_dict(self) -> dict[str, object]:
        known, (worst, bound) = self.calibration, self.worst
        error = known and known.error(bound.alpha)
        each = zip(self.prompt_ids, self.mass_of, self.lower, self.upper, strict=True)
        return {
            **{name: getattr(self, name) for name in ("mass", "target", "earlier_targets", "finished")},
            "alpha": bound.alpha,
            "said": self.source,
            "calibration": known
            and {
                **{name: getattr(known, name) for name in ("leaks", "leaks_called", "clean", "clean_called")},
                "sensitivity": error and list(error.sensitivity),
                "false_positive": error and list(error.false_positive),
            },
            "per_prompt": [
                dict(zip(("prompt_id", "mass", "lower", "upper"), map(values_of, row), strict=True))
                for row in each
            ],
            "worst_prompt": {"prompt_id": worst, "bound": bound.value},
            "pooled": self.pool and dict(zip(("lower", "upper"), map(values_of, self.pool), strict=True)),
        }


def measure(draws: Draws, queue: Queue, labels: Labels, alpha: float) -> LabelledMeasures:
    """Bound each question from the counted half by labels, and the average with the labelled draws of the rest too."""
    finished, targets = queue.ahead(labels) is None, dict.fromkeys(one.target for one in labels.asked.values())
    own = {answer: labels.known[answer] for answer in queue.chosen if answer in labels.known}
    table = np.array([_counted(draws, name, own) for name in draws.answers], dtype=np.int64)
    leaks, rest, n = table.T.astype(np.float64)
    of_rest = None
    if queue.rest > 0:
        drawn = [labels.known[answer] for answer, _ in queue.sampled] if finished else []
        of_rest = sum(drawn), len(drawn)
    pool = None
    if (n == n[0]).all() and alpha <= LARGEST_POOLED_ALPHA:
        ends = labelled_average(leaks, rest, n, of_rest, alpha)
        assumes, method = (LABELLED, LABELLED_METHOD) if of_rest is None else (WITH_REST, METHOD_REST)
        pool = both_ends(*ends, alpha, Covers.AVERAGE, assumes, method, int(n.sum()))
    lower, upper = zip(
        *(
            both_ends(low, high, alpha, Covers.ONE_PROMPT, LABELLED, LABELLED_METHOD, int(size))
            for low, high, size in zip(*labelled_rates(leaks, rest, n, alpha), n, strict=True)
        ),
        strict=True,
    )
    return LabelledMeasures(
        prompt_ids=tuple(draws.answers),
        lower=lower,
        upper=upper,
        pool=pool,
        mass_of=tuple((1 - rest / n).tolist()),
        mass=float(1 - rest.sum() / n.sum()),
        calibration=_calibration(draws, queue, labels) if draws.verdicts and finished else None,
        labels=len(own) + len({answer for answer, _ in queue.sampled} & labels.known.keys()),
        leaks=sum(labels.known.get(answer, 0) for answers in draws.answers.values() for answer in answers),
        finished=finished,
        target=queue.target,
        earlier_targets=[target for target in targets if target not in (None, queue.target)],
        counts={
            name: dict(zip(("leaks", "missing", "n"), row, strict=True))
            for name, row in zip(draws.answers, table.tolist(), strict=True)
        },
        of_rest=of_rest,
    )


def _counted(draws: Draws, name: str, own: Mapping[Answer, int]) -> tuple[int, int, int]:
    """Of one question's second half: labelled leaks, draws without a label, and all draws."""
    answers = draws.second(name)
    if not answers:
        raise BadValue(f"answers to {name}", len(draws.answers[name]), "at least 2: one half chooses, one counts")
    return sum(own.get(one, 0) for one in answers), sum(one not in own for one in answers), len(answers)


def _calibration(draws: Draws, queue: Queue, labels: Labels) -> Calibration | None:
    """The judge's error on the labelled draws of the rest; None if one of the labels does not occur."""
    found = [labels.known[answer] for answer, _ in queue.sampled]
    if len(set(found)) < 2:
        return None
    verdicts = [float(draws.second_verdicts(answer.prompt_id)[place]) for answer, place in queue.sampled]
    return Calibration.of(found, verdicts, of_this_run=True)


@dataclass(frozen=True)
class RandomLabels:
    """Labels of random draws alone: both ends of the average leak probability, and of each prompt with labels of its own."""

    pool: Ends
    each: Mapping[str, Ends]

    def as_dict(self, prompt_id: str | None = None) -> dict[str, object] | None:
        ends = self.pool if prompt_id is None else self.each.get(prompt_id)
        return ends and {"lower": ends[0].value, "upper": ends[1].value, "n": ends[1].n, "alpha": ends[1].alpha}

    def sentences(self, of: str) -> list[str]:
        return [end.sentence(BY_LABELS, of) for end in self.pool]


def read_random_labels(path: str | os.PathLike[str], prompts: Collection[str], alpha: float) -> RandomLabels:
    """Read labels 0 and 1 of draws (``prompt_id, sample, label``), and bound what they are labels of."""
    table = read_table(path, required=["prompt_id", "sample", "label"], text=["prompt_id"])
    if table.empty:
        raise BadFile(path, "holds no labels")
    labels, names = numeric_column(table, "label", path), table["prompt_id"].astype(str).to_numpy()
    for wrong, problem in (
        (~np.isin(labels, (0, 1)), "label must be 0 (no leak) or 1 (leak)"),
        (~np.isin(names, list(prompts)), "prompt_id is none of the scores'"),
        (table.duplicated(["prompt_id", "sample"]).to_numpy(), "labels a draw a second time"),
    ):
        if wrong.any():
            raise BadRow(path, file_line(path, int(np.argmax(wrong))), problem)
    how, each = (AT_RANDOM, METHOD_AT_RANDOM), {}
    for name in dict.fromkeys(names.tolist()):
        own = labels[names == name]
        (lower,), (upper,) = rate_bounds([own.sum()], [len(own)], alpha)
        each[name] = both_ends(lower, upper, alpha, Covers.ONE_PROMPT, *how, len(own))
    ends = random_labels(int(labels.sum()), len(labels), alpha)
    return RandomLabels(both_ends(*ends, alpha, Covers.AVERAGE, *how, len(labels)), each)
