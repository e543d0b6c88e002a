"""Comparisons of sampled models: intervals that hold at every sample size, for any distribution in [0, 1].

Two quantities count as different only if their intervals are disjoint. Each interval holds by itself, so no assumption is
made about the dependence between two models: models sampled with one seed share random streams.

``groups`` holds one array of i.i.d. draws in [0, 1] for each question, in drawing order and of equal length; questions
are independent. NaN is a missing value, which counts as 0 for the lower end and as 1 for the upper end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.checks import check_alpha, check_scores
from lethe.statistics.many_prompts import pooled_average

Outcome = Literal["higher", "lower", "not shown"]
Groups = Sequence[np.ndarray]
INDEPENDENT = "independent draws, identically distributed within a question"


@dataclass(frozen=True)
class Interval:
    """A two-sided interval: it contains the quantity with probability at least 1 - alpha."""

    value: float
    lower: float
    upper: float
    n: int
    alpha: float
    method: str
    assumes: str = INDEPENDENT
    side: str = "two-sided"

    def bounds(self) -> tuple[Bound, Bound]:
        """The lower and the upper end, each a bound at half of alpha."""
        rest = (self.alpha / 2, Covers.AVERAGE, self.assumes, self.method, self.n)
        return Bound(self.lower, "lower", *rest), Bound(self.upper, "upper", *rest)


def share_interval(groups: Groups, alpha: float) -> Interval:
    """Interval of the probability of 1, averaged over questions, from draws of 0 or 1: `many_prompts.pooled_average` at
    alpha / 2.
    """
    low, high, value = _filled(groups)
    if not np.isin(low, (0.0, 1.0)).all():
        raise BadValue("groups", "numbers between 0 and 1", "draws that are 0 or 1")
    check_alpha(alpha)
    n = low.shape[1]
    lower = pooled_average(low.sum(axis=1), n, alpha / 2, "lower")
    upper = pooled_average(high.sum(axis=1), n, alpha / 2)
    return Interval(value, lower.value, upper.value, low.size, alpha, "Clopper-Pearson, pooled")


def mean_interval(groups: Groups, alpha: float) -> Interval:
    """Interval of the expected score, averaged over questions.

    The method is Bernstein's inequality with an upper bound of the variance within questions. For each end, the inequality
    and the variance bound take alpha / 4 each. Differences between the questions do not widen the interval.
    """
    check_alpha(alpha)
    low, high, value = _filled(groups)
    lower = max(0.0, float(low.mean()) - _mean_width(low, alpha / 2))
    upper = min(1.0, float(high.mean()) + _mean_width(high, alpha / 2))
    return Interval(value, lower, upper, low.size, alpha, "Bernstein, variance bounded")


def within_variance_interval(groups: Groups, alpha: float) -> Interval:
    """Interval of the variance within a question, averaged over questions.

    Half the squared difference of two draws is unbiased for their variance, so the mean over disjoint pairs is an
    average of independent values, to which the empirical Bernstein inequality applies.
    """
    check_alpha(alpha)
    squares = _pair_squares(_checked(groups))
    # The square of a pair with a missing draw may lie anywhere in [0, 1].
    low, high = np.nan_to_num(squares, nan=0.0), np.nan_to_num(squares, nan=1.0)
    lower = max(0.0, float(low.mean()) - empirical_width(low, alpha / 2))
    upper = min(1.0, float(high.mean()) + empirical_width(high, alpha / 2))
    value = float(np.nanmean(squares)) / 2
    return Interval(value, lower / 2, upper / 2, squares.size, alpha, "empirical Bernstein on disjoint pairs")


def distinct_share_interval(distinct: Sequence[int], drawn: Sequence[int], alpha: float) -> Interval:
    """Interval of the expected number of distinct answers per drawn answer; ``distinct`` and ``drawn`` are by question.

    The number of distinct answers is a self-bounding function of the draws, so its deviations are at most those of a
    Poisson variable. Source: Boucheron, Lugosi and Massart (2000), A sharp concentration inequality with applications:
    P(Z <= EZ - t) <= exp(-t^2 / (2 EZ)) and P(Z >= EZ + t) <= exp(-t^2 / (2 EZ + 2 t / 3)), solved for EZ.
    """
    check_alpha(alpha)
    different, sizes = np.asarray(distinct, dtype=np.float64), np.asarray(drawn, dtype=np.float64)
    if different.size == 0 or different.size != sizes.size:
        raise BadValue("distinct", f"{different.size} counts", f"one count per question ({sizes.size} questions)")
    if (sizes < 1).any() or (different < 1).any() or (different > sizes).any():
        raise BadValue("distinct", different.tolist(), "between 1 and the number of draws of each question")
    found, n, log = float(different.sum()), float(sizes.sum()), math.log(2 / alpha)
    fewest = found - (math.sqrt((2 / 3 * log) ** 2 + 2 * log * found) - 2 / 3 * log)
    most = found + log + math.sqrt(log**2 + 2 * log * found)
    return Interval(found / n, max(0.0, fewest / n), min(1.0, most / n), int(n), alpha, "self-bounding function")


def compare(left: Interval, right: Interval) -> Outcome:
    """Return whether ``left`` lies above or below ``right``; the error probabilities of the two intervals add up."""
    if left.lower > right.upper:
        return "higher"
    if left.upper < right.lower:
        return "lower"
    return "not shown"


def _mean_width(values: np.ndarray, alpha: float) -> float:
    """The distance from the mean to one end, at alpha: alpha / 2 for the variance, alpha / 2 for the mean."""
    squares = _pair_squares(values)
    variance = (float(squares.mean()) + empirical_width(squares, alpha / 2)) / 2
    log = math.log(2 / alpha)
    return math.sqrt(2 * min(variance, 0.25) * log / values.size) + log / (3 * values.size)


def empirical_width(values: np.ndarray, alpha: float) -> float:
    """The distance to one end for the mean of independent values in [0, 1]: Maurer and Pontil (2009), Theorem 11."""
    n, log = values.size, math.log(2 / alpha)
    return math.sqrt(2 * float(values.var(ddof=1)) * log / n) + 7 * log / (3 * (n - 1))


def _pair_squares(values: np.ndarray) -> np.ndarray:
    """Squared differences of draws 1 and 2, 3 and 4, ... of each question; an odd draw is left out."""
    pairs = values[:, : values.shape[1] // 2 * 2].reshape(len(values), -1, 2)
    return np.square(pairs[..., 0] - pairs[..., 1]).ravel()


def _filled(groups: Groups) -> tuple[np.ndarray, np.ndarray, float]:
    """The draws with missing values as 0, the draws with missing values as 1, and the mean of the values present."""
    values = _checked(groups)
    return np.nan_to_num(values, nan=0.0), np.nan_to_num(values, nan=1.0), float(np.nanmean(values))


def _checked(groups: Groups) -> np.ndarray:
    """The groups as one array (questions, n), NaN where missing."""
    sizes = sorted({len(group) for group in groups})
    if len(sizes) != 1 or sizes[0] < 2 or sizes[0] * len(groups) < 4:
        raise BadValue(
            "groups", f"groups of {sizes} draws", "groups of equal size, at least two draws each and four in all"
        )
    values = np.array(groups, dtype=np.float64)
    if np.isnan(values).all():
        raise BadValue("groups", "only missing values", "draws with at least one value")
    check_scores(np.nan_to_num(values, nan=0.0))
    return values
