"""The quantities that compare two models, each measured as a confidence interval."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from lethe.evaluation.answer_scores import answer_parts, enough, scored
from lethe.evaluation.leak_share import METHOD, share_that_leaks
from lethe.evaluation.run import Model
from lethe.statistics.bound import Bound
from lethe.statistics.comparison import (
    Groups,
    Interval,
    distinct_share_interval,
    mean_interval,
    within_variance_interval,
)
from lethe.text import label

Measure = Callable[[Model, float], Interval | None]
EXACTLY_TOLD = "exact bounds"  # marks an interval of exact bounds, as opposed to one of samples


@dataclass(frozen=True)
class Quantity:
    """A quantity: ``measure(model, alpha)`` returns an interval, or None if the model's artifacts do not allow one."""

    words: str
    measure: Measure
    show: Callable[[Bound], str]  # one end of the interval, which rounds itself

    def told(self, interval: Interval) -> str:
        ends = " to ".join(map(self.show, interval.bounds()))
        return f"{ends} (with {EXACTLY_TOLD})" if interval.method == METHOD else ends


def leak_share(scorer: str, exactly: bool = False, answers: str = "forget answers") -> Quantity:
    """The probability that a forget answer leaks, by a 0/1 scorer, averaged over the questions that it can judge."""

    def measure(model: Model, alpha: float) -> Interval | None:
        return share_that_leaks(model, scorer, alpha, exactly)

    words = f"share of sampled {answers} with {label(scorer)}"
    if exactly:
        words = f"{words}, narrowed by {EXACTLY_TOLD} where there are any"
    return Quantity(words, measure, _percent)


def mean_score(split: str, scorer: str, answers: str = "") -> Quantity:
    """The expected score of a sampled answer, averaged over the questions of a split."""
    words = f"mean {label(scorer)} of sampled {answers or f'{split} answers'}"
    return Quantity(words, _measure(split, scorer, mean_interval), _number)


def spread(scorer: str, question: str = "forget question") -> Quantity:
    """The standard deviation of a score within a forget question, as root mean square over questions."""
    words = f"standard deviation of {label(scorer)} within a {question}, root mean square over questions"
    return Quantity(words, _measure("forget", scorer, within_variance_interval), _root)


def diversity(split: str) -> Quantity:
    """The expected number of distinct answers per answer drawn, for the questions of a split."""

    def measure(model: Model, alpha: float) -> Interval | None:
        if split not in model.answers:
            return None
        distinct: list[int] = []
        size: list[int] = []
        for part in answer_parts(model.answers, split, ["text"]):
            drawn = part[part["sample"] >= 0].groupby("prompt_id", sort=False)["text"]
            distinct, size = [*distinct, *drawn.nunique().tolist()], [*size, *drawn.size().tolist()]
        return distinct_share_interval(distinct, size, alpha) if size else None

    return Quantity(f"expected distinct answers for each answer drawn to a {split} question", measure, _percent)


def _measure(split: str, scorer: str, interval: Callable[[Groups, float], Interval]) -> Measure:
    def measure(model: Model, alpha: float) -> Interval | None:
        groups = scored(model, split, scorer)
        return interval(groups, alpha) if enough(groups) else None

    return measure


def _root(variance: Bound) -> str:
    return dataclasses.replace(variance, value=math.sqrt(variance.value)).number()


def _number(end: Bound) -> str:
    return end.number()


def _percent(share: Bound) -> str:
    return share.percent(4 if share.method == METHOD else 2)  # exact bounds tell rarer leaks apart
