"""Bounds from a person's labels alone; a judge's error on the rest is measured beside them.

`lethe.evaluation.labelling` decides which answers are labelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadValue
from lethe.evaluation.labelling import Draws, Queue
from lethe.evaluation.labels import Answer, Labels
from lethe.statistics.bound import Bound, Covers, rounded
from lethe.statistics.judge_error import Calibration
from lethe.statistics.label_rates import (
    ASSUMES,
    METHOD,
    METHOD_REST,
    WITH_REST,
    labelled_average,
    labelled_rates,
)
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA

if TYPE_CHECKING:
    from lethe.results.table import Rows

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
        guarantee = (METHOD, ASSUMES) if of_rest is None else (METHOD_REST, WITH_REST)
        pool = _bounds(*ends, alpha, Covers.AVERAGE, *guarantee, int(n.sum()))
    each = [
        _bounds(low, high, alpha, Covers.ONE_PROMPT, METHOD, ASSUMES, int(size))
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
