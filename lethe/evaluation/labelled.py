"""Bounds from a person's labels, and from a judge on the rest.

`lethe.evaluation.labelling` decides which answers are labelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadValue
from lethe.evaluation.labelling import Draws, Queue
from lethe.evaluation.labels import Answer, Labels
from lethe.statistics.bound import Bound, Covers, rounded
from lethe.statistics.judge_error import Calibration
from lethe.statistics.judge_labelled import LabelledRates, labelled_either, labelled_rates
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA

if TYPE_CHECKING:
    from lethe.results.table import Rows

QUANTITY = "the probability of a leak"


@dataclass(frozen=True)
class LabelledMeasures:
    """Bounds of each question by labels and verdicts, with the share of the counted mass that labels cover.

    ``judge`` says whether a judge was asked about the rest, and ``calibration`` is the judge's measured error, None where it
    could not be measured. ``pool`` bounds the average over the questions, None where their numbers of draws differ.
    ``labels`` counts the labelled answers, and ``leaks`` the draws of the run, counted or not, that a person calls a leak.
    ``targets`` are the targets under which labels were asked. ``counts`` are those of the labels alone: leaks, draws, and
    draws without a label.
    """

    prompt_ids: tuple[str, ...]
    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]
    pool: tuple[Bound, Bound] | None
    rates: LabelledRates
    mass: float
    judge: bool
    calibration: Calibration | None
    labels: int
    leaks: int
    finished: bool
    target: float
    targets: tuple[float, ...]
    counts: Mapping[str, Mapping[str, int]]

    @property
    def worst(self) -> tuple[str, Bound]:
        """The question with the largest upper bound, and that bound, which covers the worst question."""
        return self._extreme(self.upper)

    def _extreme(self, bounds: Sequence[Bound]) -> tuple[str, Bound]:
        place = max(range(len(bounds)), key=lambda place: bounds[place].value)
        return self.prompt_ids[place], replace(bounds[place], covers=Covers.WORST_PROMPT)

    @property
    def source(self) -> str:
        """The basis of the bounds, as the end of a sentence."""
        return source(self.mass, self.calibration is not None)

    def to_rows(self, rows: Rows) -> None:
        """Add the rows of each question and of all.

        The largest of several lower bounds has no valid level, so the lower bound of the worst is that of the average.
        """
        each = zip(self.prompt_ids, self.lower, self.upper, self.rates.mass, strict=True)
        for name, lower, upper, mass in each:
            evidence = self.counts[name]
            rows.add(
                "question", "leak", "labelled", None, lower, upper, item=name, split="forget", evidence=evidence
            )
            rows.add("question", "mass", "labelled", float(mass), item=name, split="forget")
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
        elif self.judge and self.calibration is None:
            told.append(
                "The judge’s error on the rest is not measured, because the labelled draws of the rest are all leaks, all "
                "clean, or none: the rest counts against the claim."
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
                "sensitivity": list(self.rates.error.sensitivity),
                "false_positive": list(self.rates.error.false_positive),
            },
            "per_prompt": [
                {"prompt_id": name, "mass": float(mass), "lower": lower.value, "upper": upper.value}
                for name, lower, upper, mass in zip(
                    self.prompt_ids, self.lower, self.upper, self.rates.mass, strict=True
                )
            ],
            "worst_prompt": {"prompt_id": name, "bound": bound.value},
            "pooled": self.pool and {"lower": self.pool[0].value, "upper": self.pool[1].value},
        }


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def source(mass: float, judged: bool) -> str:
    """The basis of bounds by labels: the share of the mass that a person read, and the treatment of the rest."""
    read = f"by a person's reading of {float(rounded(100 * mass, 1, 'lower')):g}% of the mass"
    if not judged:
        return f"{read}, the rest counted as leaks in upper bounds and as clean in lower ones"
    return f"{read}, and the judge's measured error on the rest"


def measure(draws: Draws, queue: Queue, labels: Labels, alpha: float) -> LabelledMeasures:
    """Bound each question from the counted half: from labels where an answer has one, from the judge's verdicts elsewhere.

    A judge is used if ``draws`` has verdicts and ``queue`` labels draws of the rest; both are fixed before a label is seen.
    The bounds are then those of `labelled_either`. Without a judge they are those of `labelled_rates`, which hold for any
    labelled part of the chosen answers.
    """
    judge = bool(draws.verdicts) and queue.rest > 0
    finished = queue.ahead(labels) is None
    calibration = _calibration(draws, queue, labels) if judge and finished else None
    own = {answer: labels.known[answer] for answer in queue.chosen if answer in labels.known}
    counts = [_counted(draws, name, own) for name in draws.answers]
    rates = _rates(counts, calibration, alpha, judge)
    sizes = {count.n for count in counts}
    pool = None
    if len(sizes) == 1 and alpha <= LARGEST_POOLED_ALPHA:
        total = _Counts(*(sum(values) for values in zip(*(count.values() for count in counts), strict=True)))
        found = _rates([total], calibration, alpha, judge)
        pool = _bounds(found, 0, Covers.AVERAGE, total.n)
    each = [_bounds(rates, place, Covers.ONE_PROMPT, count.n) for place, count in enumerate(counts)]
    return LabelledMeasures(
        prompt_ids=tuple(draws.answers),
        lower=tuple(lower for lower, _ in each),
        upper=tuple(upper for _, upper in each),
        pool=pool,
        rates=rates,
        mass=1 - sum(count.rest for count in counts) / sum(count.n for count in counts),
        judge=judge,
        calibration=calibration,
        labels=len(own) + len({answer for answer, _ in queue.sampled} & labels.known.keys()),
        leaks=sum(labels.known.get(answer, 0) for answers in draws.answers.values() for answer in answers),
        finished=finished,
        target=queue.target,
        targets=tuple(labels.targets),
        counts={
            name: {"leaks": count.leaks, "n": count.n, "missing": count.rest}
            for name, count in zip(draws.answers, counts, strict=True)
        },
    )


@dataclass(frozen=True)
class _Counts:
    """Counts of one question's second half: labelled leaks; unlabelled draws, with leak verdicts and missing ones; all."""

    leaks: int
    rest: int
    called: int
    missing: int
    n: int

    def values(self) -> tuple[int, ...]:
        return self.leaks, self.rest, self.called, self.missing, self.n


def _counted(draws: Draws, name: str, own: Mapping[Answer, int]) -> _Counts:
    answers = draws.second(name)
    if not answers:
        raise BadValue(f"answers to {name}", len(draws.answers[name]), "at least 2: one half chooses, one counts")
    outside = np.array([answer not in own for answer in answers])
    verdicts = draws.second_verdicts(name)[outside] if draws.verdicts else np.array([])
    return _Counts(
        leaks=sum(own.get(answer, 0) for answer in answers),
        rest=int(outside.sum()),
        called=int((verdicts == 1).sum()),
        missing=int(np.isnan(verdicts).sum()),
        n=len(answers),
    )


def _rates(counts: Sequence[_Counts], calibration: Calibration | None, alpha: float, judge: bool) -> LabelledRates:
    leaks, rest, called, missing, n = (
        np.array(column) for column in zip(*(c.values() for c in counts), strict=True)
    )
    if judge:
        return labelled_either(leaks, rest, called, n, calibration, alpha, missing)
    return labelled_rates(leaks, rest, called, n, None, alpha, missing)


def _bounds(rates: LabelledRates, place: int, covers: Covers, n: int) -> tuple[Bound, Bound]:
    rest = (rates.alpha, covers, rates.assumes, rates.method, n)
    return Bound(float(rates.lower[place]), "lower", *rest), Bound(float(rates.upper[place]), "upper", *rest)


def _calibration(draws: Draws, queue: Queue, labels: Labels) -> Calibration | None:
    """The judge's error on the labelled draws of the rest; None if one of the labels does not occur."""
    found = [labels.known[answer] for answer, _ in queue.sampled]
    if len(set(found)) < 2:
        return None
    verdicts = [float(draws.second_verdicts(answer.prompt_id)[place]) for answer, place in queue.sampled]
    return Calibration.of(found, verdicts, of_this_run=True)
