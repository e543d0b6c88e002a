"""Comparisons of sampled models: intervals that hold at every sample size, for any distribution in [0, 1].

Two quantities are called different only where their intervals do not meet. Each interval holds by itself, so
nothing is assumed of the dependence between two models: those sampled with the same seed share random streams.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stages.errors import BadValue

Outcome = Literal["higher", "lower", "not shown"]


@dataclass(frozen=True)
class Interval:
    """A two-sided interval for a mean: it contains the mean with probability at least 1 - alpha."""

    value: float
    lower: float
    upper: float
    n: int
    alpha: float
    method: str
    assumes: str
    side: str = "two-sided"


def mean_interval(values: np.ndarray, alpha: float) -> Interval:
    """Empirical-Bernstein interval for the average expectation of independent values in [0, 1].

    ``values`` has any shape; NaN is a missing value, which counts as 0 on the lower side and as 1 on the upper.
    The values need not be identically distributed, so draws of several questions may be pooled. The point value is
    over what is there. Source: Maurer and Pontil (2009), Theorem 11, each side at alpha / 2.
    """
    _check_alpha(alpha)
    values = np.asarray(values, dtype=np.float64).ravel()
    present = values[~np.isnan(values)]
    if present.size == 0 or values.size < 2:
        raise BadValue("values", f"{present.size} numbers", "at least two values, not all missing")
    if present.min() < 0 or present.max() > 1:
        raise BadValue("values", float(present.min() if present.min() < 0 else present.max()), "numbers in [0, 1]")
    lows, highs = (np.where(np.isnan(values), fill, values) for fill in (0.0, 1.0))
    return Interval(
        value=float(present.mean()),
        lower=max(0.0, float(lows.mean()) - _bernstein_width(lows, alpha / 2)),
        upper=min(1.0, float(highs.mean()) + _bernstein_width(highs, alpha / 2)),
        n=values.size,
        alpha=alpha,
        method="empirical Bernstein",
        assumes="independent values in [0, 1]",
    )


def within_variance_interval(groups: Sequence[np.ndarray], alpha: float) -> Interval:
    """Interval for the variance within a question, averaged over questions.

    ``groups`` holds one array of i.i.d. draws in [0, 1] for each question, in drawing order. Half the squared
    difference of two draws is unbiased for their variance, so the mean over disjoint pairs is an average of
    independent values. With unequal n a question counts by its number of pairs.
    """
    pairs = [np.asarray(group, dtype=np.float64) for group in groups]
    pairs = [(group[: len(group) // 2 * 2].reshape(-1, 2)) for group in pairs]
    squares = np.concatenate([(pair[:, 0] - pair[:, 1]) ** 2 for pair in pairs])
    whole = mean_interval(squares, alpha)
    return Interval(
        value=whole.value / 2,
        lower=whole.lower / 2,
        upper=whole.upper / 2,
        n=whole.n,
        alpha=alpha,
        method="empirical Bernstein on disjoint pairs",
        assumes="i.i.d. draws in [0, 1] within a question, independent questions",
    )


def distinct_share_interval(distinct: Sequence[int], drawn: Sequence[int], alpha: float) -> Interval:
    """Interval for the expected share of distinct answers among ``drawn[i]`` draws, averaged over questions.

    One draw changes the number of distinct answers of its question by at most one: McDiarmid's inequality.
    """
    _check_alpha(alpha)
    distinct, drawn = np.asarray(distinct, dtype=np.float64), np.asarray(drawn, dtype=np.float64)
    if distinct.size == 0 or distinct.size != drawn.size:
        raise BadValue("distinct", f"{distinct.size} counts", f"one count a question ({drawn.size} questions)")
    if (drawn < 1).any() or (distinct < 1).any() or (distinct > drawn).any():
        raise BadValue("distinct", distinct.tolist(), "between 1 and the number of draws of each question")
    value = float((distinct / drawn).mean())
    width = math.sqrt(math.log(2 / alpha) / 2 * float((1 / drawn).sum()) / drawn.size**2)
    return Interval(
        value=value,
        lower=max(0.0, value - width),
        upper=min(1.0, value + width),
        n=int(drawn.sum()),
        alpha=alpha,
        method="McDiarmid",
        assumes="independent draws",
    )


def compare(left: Interval, right: Interval) -> Outcome:
    """Whether ``left`` lies above or below ``right``; the errors of the two intervals add up."""
    if left.lower > right.upper:
        return "higher"
    if left.upper < right.lower:
        return "lower"
    return "not shown"


def _bernstein_width(values: np.ndarray, alpha: float) -> float:
    n, log = values.size, math.log(2 / alpha)
    return math.sqrt(2 * float(values.var(ddof=1)) * log / n) + 7 * log / (3 * (n - 1))


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha <= 0.5:
        raise BadValue("alpha", alpha, "in (0, 0.5]")
