"""Intervals of TOFU's aggregates, for questions like those of the log.

The questions are taken as a sample. The interval of a mean over the questions is by betting, at every number of questions.
Model utility rises with each of its terms, so the ends of all terms together (Bonferroni) give its ends. Forget quality is
a p-value and no property of the models by itself: its interval is that of the p-value which the same numbers of questions
give at the true distance of the two distributions of truth ratios. The distance lies within the Dvoretzky-Kiefer-Wolfowitz
band of both samples (Massart 1990), each at half of alpha, whether or not the models answer the same questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lethe.scoring.tofu import harmonic_mean
from lethe.statistics.bands import dkw
from lethe.statistics.betting import mean_lower, mean_upper
from lethe.statistics.two_sample import KsTest, ks_test

BETTING = "betting (Waudby-Smith and Ramdas), alpha / 2 a side"
TOGETHER = "betting on every term, Bonferroni, carried to the harmonic mean"
DISTANCE = "Dvoretzky-Kiefer-Wolfowitz on the distance, carried to the exact p-value"
ASSUMES = "the questions are independent draws (TOFU has 20 of each author)"
QUESTIONS = "questions like these"
ORDER = 0  # the seed of the order in which the questions are bet on, fixed beforehand


@dataclass(frozen=True)
class Interval:
    """An estimate with a two-sided interval, which fails with probability at most ``alpha``."""

    estimate: float
    lower: float
    upper: float
    alpha: float
    method: str
    covers: str = QUESTIONS
    assumes: str = ASSUMES


def of_mean(values: np.ndarray, alpha: float) -> Interval | None:
    """The mean of values in [0, 1] over questions, NaN left out; None without any value."""
    values = np.asarray(values, dtype=np.float64)
    present = values[~np.isnan(values)]
    if not present.size:
        return None
    estimate = float(present.mean())
    drawn = np.random.default_rng(ORDER).permutation(present)[
        None
    ]  # a bet follows the order, and rows are by author
    low, high = float(mean_lower(drawn, alpha / 2)[0]), float(mean_upper(drawn, alpha / 2)[0])
    return Interval(estimate, min(low, estimate), max(high, estimate), alpha, BETTING)


def of_utility(terms: Mapping[str, np.ndarray], alpha: float) -> Interval | None:
    """Model utility, from the values of each term over its questions; None where a term has no value."""
    each = [of_mean(values, alpha / len(terms)) for values in terms.values()]
    found = [interval for interval in each if interval is not None]
    if len(found) < len(terms):
        return None
    estimate, lower, upper = (
        harmonic_mean(np.array([getattr(interval, end) for interval in found]))
        for end in ("estimate", "lower", "upper")
    )
    return Interval(estimate, lower, upper, alpha, TOGETHER)


def of_quality(test: KsTest, alpha: float) -> Interval:
    """Forget quality: the p-value at both ends of the distance of the two distributions."""
    n, m = test.n_first, test.n_second
    width = dkw(n, alpha / 2, 2) + dkw(m, alpha / 2, 2)
    grid = (1 / n + 1 / m) / 2  # what a statistic of samples of these sizes can miss a distance by
    lower = _p_value(test.statistic + width + grid, n, m)
    upper = _p_value(test.statistic - width - grid, n, m)
    return Interval(test.p_value, lower, upper, alpha, DISTANCE)


def _p_value(distance: float, n: int, m: int) -> float:
    """The exact p-value of two samples that lie ``distance`` apart, within one step of their sizes."""
    if distance <= 0:
        return 1.0
    first, second = ((np.arange(size) + 0.5) / size for size in (n, m))
    return ks_test(first, second + min(distance, 1.0)).p_value
