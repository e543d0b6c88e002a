"""The largest standard deviation that a confidence band of the distribution function allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from lethe.statistics.bands import dkw
from lethe.statistics.bound import Bound
from lethe.statistics.checks import check_alpha, check_scores, in_blocks

LARGEST = 0.5  # the largest standard deviation of scores in [0, 1]


def possible(bound: Bound) -> Bound:
    """Cap a bound on the standard deviation of scores in [0, 1] at .5; the guarantee still holds."""
    return replace(bound, value=min(bound.value, LARGEST))


def sd_upper(scores: np.ndarray, alpha: float, missing: Literal["refuse", "worst"] = "refuse") -> np.ndarray:
    """(P,) upper bound of each row's standard deviation over the two-sided DKW band, with probability 1 - alpha.

    The largest variance in the band is the minimum over centres a of the largest E(X - a)^2. At each level u the
    quantile lies between the quantiles of the band's edges; the edge farther from a gives the maximum.

    Parameters
    ----------
    scores
        Independent draws in [0, 1], shape (P, n).
    alpha
        Error probability of each bound.
    missing
        "worst" lets a NaN have any value: one edge counts it as 0, the other as 1; "refuse" raises `BadValue`.
    """
    scores = check_scores(scores, missing)
    check_alpha(alpha)
    e = dkw(scores.shape[1], alpha, sides=2)
    return in_blocks(lambda block: {"sd": np.sqrt(_largest_variance(block, e))}, scores)["sd"]


def _largest_variance(scores: np.ndarray, e: float) -> np.ndarray:
    n = scores.shape[1]
    low, high = (np.sort(np.where(np.isnan(scores), fill, scores), axis=1) for fill in (0.0, 1.0))
    low, high = (np.pad(side, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1))) for side in (low, high))
    ranks = np.arange(n + 1) / n
    # Between two neighbouring levels both edges' quantiles are constant.
    levels = np.unique(np.clip(np.concatenate([[0.0, 1.0], ranks - e, ranks + e]), 0, 1))
    weights, middle = np.diff(levels), (levels[:-1] + levels[1:]) / 2
    low = low[:, np.clip(np.ceil((middle - e) * n), 0, n + 1).astype(int)]
    high = high[:, np.clip(np.ceil((middle + e) * n), 0, n + 1).astype(int)]

    # The farther quantile is the low one up to some level, and the high one above that level. If the low quantile lies below
    # a cell and the high one above it, the variance is concave in the level of the change inside the cell.
    def moments(power: int) -> np.ndarray:
        """(P, levels) moments of the distribution that changes from low to high at the start of each cell."""
        below, above = weights * low**power, weights * high**power
        return np.cumsum(below, axis=1) - below + np.cumsum(above[:, ::-1], axis=1)[:, ::-1]

    mean, square, width = moments(1), moments(2), high - low
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = np.clip(np.where(width > 0, (mean - (low + high) / 2) / width, 0), 0, weights)
    mean -= inside * width
    square -= inside * width * (high + low)
    return np.maximum(square - np.square(mean), 0).max(axis=1)
