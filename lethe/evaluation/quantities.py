"""The quantities that compare two models, each measured as a confidence interval."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from lethe.evaluation.answer_scores import scored
from lethe.evaluation.run import Model
from lethe.statistics.bound import Bound
from lethe.statistics.comparison import (
    Groups,
    Interval,
    distinct_share_interval,
    mean_interval,
    share_interval,
    within_variance_interval,
)
from lethe.statistics.judged_interval import judged_share_interval
from lethe.text import label

Measure = Callable[[Model, float], Interval | None]


@dataclass(frozen=True)
class Quantity:
    """A quantity: ``measure(model, alpha)`` returns an interval, or None if the model's artifacts do not allow one."""

    words: str
    measure: Measure
    show: Callable[[Bound], str]  # one end of the interval, which rounds itself

    def told(self, interval: Interval) -> str:
        """The interval as text, with each end rounded outward."""
        return " to ".join(map(self.show, interval.bounds()))


def leak_share(scorer: str) -> Quantity:
    """The probability that a sampled forget answer leaks, by a 0/1 scorer, averaged over the questions that it can judge.

    Where the scorer's error was measured, the interval covers the true leak probability.
    """

    def measure(model: Model, alpha: float) -> Interval | None:
        groups = scored(model, "forget", scorer, unjudged(model))
        if groups and model.calibration:
            return judged_share_interval(groups, model.calibration, alpha)
        return share_interval(groups, alpha) if groups else None

    return Quantity(f"share of sampled forget answers with {label(scorer)}", measure, _percent)


def mean_score(split: str, scorer: str) -> Quantity:
    """The expected score of a sampled answer, averaged over the questions of a split."""
    words = f"mean {label(scorer)} of sampled {split} answers"
    return Quantity(words, _measure(split, scorer, mean_interval), _number)


def spread(scorer: str) -> Quantity:
    """The standard deviation of a score within a forget question, as root mean square over questions."""
    words = f"standard deviation of {label(scorer)} within a forget question, root mean square over questions"
    return Quantity(words, _measure("forget", scorer, within_variance_interval), _root)


def diversity(split: str) -> Quantity:
    """The expected number of distinct answers per answer drawn, for the questions of a split."""

    def measure(model: Model, alpha: float) -> Interval | None:
        table = model.answers.get(split)
        if table is None:
            return None
        drawn = table[table["sample"] >= 0].groupby("prompt_id", sort=False)["text"]
        distinct, size = drawn.nunique().tolist(), drawn.size().tolist()
        return distinct_share_interval(distinct, size, alpha) if size else None

    return Quantity(f"expected distinct answers for each answer drawn to a {split} question", measure, _percent)


def unjudged(model: Model) -> list[str]:
    """The forget questions that the 0/1 scorer cannot judge, because they have no keywords."""
    if not any(row.get("m_bin") is not None for row in model.questions):
        return []  # there is no 0/1 scorer, or all questions stopped early
    return [row["prompt_id"] for row in model.questions if row.get("m_bin") is None]


def _measure(split: str, scorer: str, interval: Callable[[Groups, float], Interval]) -> Measure:
    def measure(model: Model, alpha: float) -> Interval | None:
        groups = scored(model, split, scorer)
        return interval(groups, alpha) if groups else None

    return measure


def _root(variance: Bound) -> str:
    return dataclasses.replace(variance, value=math.sqrt(variance.value)).number()


def _number(end: Bound) -> str:
    return end.number()


def _percent(share: Bound) -> str:
    return share.percent(2)
