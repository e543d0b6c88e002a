"""Differences between two means of scores in [0, 1], for samples that may depend on each other.

Two models sampled with one seed share random numbers, so neither independence nor a pairing of their answers is assumed.
A difference is refuted where no common mean is left: for each mean m, "a's mean is m" and "b's mean is m" are four one-sided
tests, of which one is false with probability at most 4 times its level (Bonferroni). A side that a rule could stop early has
bounds that hold at the stop, each at the same level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.errors import BadValue
from lethe.statistics import betting
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.checks import check_alpha, check_scores
from lethe.statistics.many_prompts import binary_p_value
from lethe.statistics.sequential import METHOD as AT_THE_STOP
from lethe.statistics.sequential import StoppedSamples, stopped_average

NEITHER = (False, False)  # of the two sides, which ones a rule could stop
LOOKS = "a stopping rule that looks only at its own side"
ASSUMES = (
    "independent draws within each question and model, in sampling order; any dependence between the two models"
)
SIDES = 4  # one-sided statements behind one difference
STEPS = 45  # bisection steps: down to 2^-45 of the unit interval


@dataclass(frozen=True)
class Difference:
    """b's mean minus a's: estimates over the judged scores, a two-sided interval, and the p-value of "no difference".

    The interval fails by itself with probability at most ``alpha``, and excludes 0 exactly if ``p_value`` is at most
    ``alpha``, up to rounding. The estimates are NaN if no score was judged.
    """

    a: float
    b: float
    low: float
    high: float
    p_value: float
    alpha: float
    method: str
    assumes: str = ASSUMES

    def bounds(self, covers: Covers = Covers.ONE_PROMPT) -> tuple[Bound, Bound]:
        """The lower and the upper end, which hold together at alpha; ``covers``: what the difference is about."""
        rest = (self.alpha, covers, self.assumes, self.method)
        return Bound(self.low, "lower", *rest), Bound(self.high, "upper", *rest)

    @property
    def difference(self) -> float:
        """The estimate."""
        return self.b - self.a


def difference(
    a: np.ndarray, b: np.ndarray, alpha: float, binary: bool = False, stopped: tuple[bool, bool] = NEITHER
) -> Difference:
    """Compare the means of two samples.

    Parameters
    ----------
    a, b : arrays of shape (n,) and (m,)
        Scores in [0, 1] in sampling order. NaN is a missing score, which counts as 0 in a lower bound and as 1 in an upper
        bound.
    alpha : float
        Error probability of the interval, above 0 and at most 0.5.
    binary : bool
        Whether the scorer gives only 0 and 1. This is a property of the scorer, not of these values.
    stopped : pair of bool
        Whether a rule that looks at the scores of this side could stop the draws of ``a``, and of ``b``.

    Returns
    -------
    Difference

    Raises
    ------
    BadValue
        If a score is outside [0, 1], or there are no scores.

    Notes
    -----
    For scores of 0 and 1: Clopper-Pearson, each side at alpha / 4. For other scores: betting (Waudby-Smith and Ramdas 2024)
    with stakes sized for alpha / 4. For a stopped side: `sequential.stopped_upper` at alpha / 4. The p-value is
    4 times the largest level at which a common mean survives.

    Examples
    --------
    >>> found = difference(np.zeros(200), np.repeat([1.0, 0.0], [60, 140]), alpha=0.05, binary=True)
    >>> round(found.low, 3), round(found.high, 3), found.p_value < 1e-6
    (0.208, 0.378, True)
    """
    check_alpha(alpha)
    first, second = (
        _Means(scores, alpha / SIDES, binary, rule) for scores, rule in zip((a, b), stopped, strict=True)
    )
    low, high = second.lower - first.upper, second.upper - first.lower
    p = _common(first, second) if second.mean >= first.mean else _common(second, first)
    method = _methods("Clopper-Pearson" if binary else "betting", AT_THE_STOP, stopped)
    return Difference(first.mean, second.mean, low, high, min(1.0, SIDES * p), alpha, method, _assumes(stopped))


def _methods(fixed: str, at_the_stop: str, stopped: tuple[bool, bool]) -> str:
    if stopped[0] == stopped[1]:
        return at_the_stop if stopped[0] else fixed
    return "; ".join(f"{name}: {at_the_stop if rule else fixed}" for name, rule in zip("AB", stopped, strict=True))


def _assumes(stopped: tuple[bool, bool], more: str = "") -> str:
    return ASSUMES + (f"; {LOOKS}" if any(stopped) else "") + more


class _Means:
    """The one-sided bounds of a sample's mean at ``level``, and the p-values that they invert."""

    def __init__(self, scores: np.ndarray, level: float, binary: bool, stopped: bool = False):
        values = check_scores(scores, "worst")[0]
        judged = values[~np.isnan(values)]
        self.level, self.n = level, len(values)
        self.mean = float(judged.mean()) if len(judged) else float("nan")
        self.binary = binary
        if binary and not np.isin(judged, (0.0, 1.0)).all():
            raise BadValue("scores", "numbers between 0 and 1", "0 or 1 if binary is set")
        self.low, self.high = np.nan_to_num(values, nan=0.0)[None], np.nan_to_num(values, nan=1.0)[None]
        self.stopped: tuple[StoppedSamples, StoppedSamples] | None = (
            None  # of the scores and of 1 minus the scores
        )
        if stopped:
            self.stopped = StoppedSamples([self.high[0]]), StoppedSamples([1 - self.low[0]])
            self.upper, below = (float(one.uppers(level)[0]) for one in self.stopped)
            self.lower = 1 - below
        elif self.binary:
            self.lower = float(binary_lower(self.low.sum(), self.n, level))
            self.upper = float(binary_upper(self.high.sum(), self.n, level))
        else:
            self.lower = float(betting.mean_lower(self.low, level, recomputed=False)[0])
            self.upper = float(betting.mean_upper(self.high, level, recomputed=False)[0])

    def at_least(self, mean: float) -> float:
        """The p-value of "the mean is at least ``mean``": small where ``mean`` is large."""
        if self.stopped:
            return float(self.stopped[0].p_values(np.array([mean]))[0])
        if self.binary:
            return float(binary_p_value(self.high.sum(), self.n, mean))
        return float(betting.p_value(self.high, mean, self.level)[0])

    def at_most(self, mean: float) -> float:
        """The p-value of "the mean is at most ``mean``": small where ``mean`` is small."""
        if self.stopped:
            return float(self.stopped[1].p_values(np.array([1 - mean]))[0])
        if self.binary:
            return float(binary_p_value(self.n - self.low.sum(), self.n, 1 - mean))
        return float(betting.p_value(1 - self.low, 1 - mean, self.level)[0])


def _common(below: _Means, above: _Means) -> float:
    """The largest p-value over common means m of "below's mean is at least m or above's mean at most m", rounded up."""
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        if above.at_most(middle) < below.at_least(middle):
            low = middle
        else:
            high = middle
    return min(above.at_most(high), below.at_least(low))


def mean_of_differences(
    a: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    alpha: float,
    binary: bool = False,
    groups: Sequence[str] | None = None,
    stopped: tuple[bool, bool] = NEITHER,
) -> Difference | None:
    """Compare two sides by their means, averaged over questions.

    Parameters
    ----------
    a, b : sequences of arrays
        The scores of each question, for the same number of questions on both sides.
    alpha : float
        Error probability of the interval; at most 1/2.
    binary : bool
        As in `difference`.
    groups : sequence of str, optional
        The model of each question; by default one model has all questions.
    stopped : pair of bool
        As in `difference`.

    Returns
    -------
    Difference or None
        None if the questions of one side of one model have different numbers of answers, or fewer than two answers. Then no
        interval of the average is proven, except for a stopped side.

    Notes
    -----
    Each side is `comparison.share_interval` (scores of 0 and 1) or `comparison.mean_interval` at alpha / 2, so the four
    one-sided bounds take alpha / 4 each. The questions must be independent too. Models sampled with one seed share random
    numbers, so their counts are not pooled: each of M models has bounds at a level M times smaller, and the average of these
    bounds, weighted by the numbers of questions, holds under any dependence between models (Bonferroni). A stopped side is
    `sequential.stopped_average`, Bonferroni over its questions. The p-value is found by bisection over alpha.
    """
    from lethe.statistics.comparison import mean_interval, share_interval

    check_alpha(alpha)
    if not a or len(a) != len(b):
        raise BadValue("questions", (len(a), len(b)), "the same number on both sides, at least one")
    names = groups if groups is not None else [""] * len(a)
    if len(names) != len(a):
        raise BadValue("groups", len(names), f"one for each of the {len(a)} questions")
    parts = [
        [[own for own, name in zip(side, names, strict=True) if name == model] for side in (a, b)]
        for model in dict.fromkeys(names)
    ]
    if not all(rule or _has_interval(side) for part in parts for side, rule in zip(part, stopped, strict=True)):
        return None
    fixed = share_interval if binary else mean_interval
    intervals = [stopped_average if rule else fixed for rule in stopped]
    weights = np.array([len(first) for first, _ in parts]) / len(a)

    def ends(level: float) -> tuple[float, float, float, float]:
        share = level / 2 / len(parts)
        found = [[interval(side, share) for interval, side in zip(intervals, part, strict=True)] for part in parts]
        first, second = (
            weights @ np.array([(one.value, one.lower, one.upper) for one in side])
            for side in zip(*found, strict=True)
        )
        return float(first[0]), float(second[0]), float(second[1] - first[2]), float(second[2] - first[1])

    first, second, low, high = ends(alpha)
    pooled = "Clopper-Pearson on the pooled counts" if binary else "Bernstein, variance bounded"
    method = _methods(pooled, f"{AT_THE_STOP}, Bonferroni over the questions", stopped)
    return Difference(
        first,
        second,
        low,
        high,
        _smallest_level(lambda level: (found := ends(level))[2] > 0 or found[3] < 0, 16 if any(stopped) else 40),
        alpha,
        method + (", Bonferroni over the models" if len(parts) > 1 else ""),
        _assumes(stopped, "; independent questions" + (" within each model" if len(parts) > 1 else "")),
    )


def _has_interval(side: Sequence[np.ndarray]) -> bool:
    """Whether an interval of the average is proven: equally many answers per question, at least two, not all missing."""
    sizes = {len(own) for own in side}
    enough = len(sizes) == 1 and min(sizes) >= 2 and min(sizes) * len(side) >= 4
    return enough and not np.isnan(np.concatenate(list(side))).all()


def _smallest_level(excludes: Callable[[float], bool], steps: int, largest: float = 0.5) -> float:
    """The smallest level at which an interval excludes 0, rounded up after ``steps`` halvings; 1 if there is none."""
    if not excludes(largest):
        return 1.0
    low, high = -220.0, float(np.log(largest))  # logarithms; the intervals exist down to 1e-100
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if excludes(float(np.exp(middle))) else (middle, high)
    return float(np.exp(high))
