"""The largest standard deviation that a confidence band of the distribution function allows."""

from __future__ import annotations

import numpy as np

from stages.statistics.bands import dkw
from stages.statistics.checks import check_alpha, check_scores


def sd_upper(scores: np.ndarray, alpha: float) -> np.ndarray:
    """(P,) upper bound of each row's standard deviation over the two-sided DKW band, with probability 1 - alpha.

    The largest variance in the band is the smallest, over centres a, of the largest E(X - a)^2: at each level u the
    quantile lies between those of the band's edges, and the farther one from a counts.
    """
    scores = check_scores(scores)
    check_alpha(alpha)
    e = dkw(scores.shape[1], alpha, sides=2)
    return np.sqrt([_largest_variance(np.sort(row), e) for row in scores])


def _largest_variance(ordered: np.ndarray, e: float) -> float:
    n = len(ordered)
    padded = np.concatenate([[0.0], ordered, [1.0]])
    ranks = np.arange(n + 1) / n
    # Between two neighbouring levels both edges' quantiles are constant.
    levels = np.unique(np.clip(np.concatenate([[0.0, 1.0], ranks - e, ranks + e]), 0, 1))
    weights, middle = np.diff(levels), (levels[:-1] + levels[1:]) / 2
    low = padded[np.clip(np.ceil((middle - e) * n), 0, n + 1).astype(int)]
    high = padded[np.clip(np.ceil((middle + e) * n), 0, n + 1).astype(int)]
    left, right = 0.0, 1.0
    for _ in range(60):  # the slope in a of a convex function, which changes sign once
        centre = (left + right) / 2
        farther = np.where(low + high < 2 * centre, low, high)
        if weights @ (centre - farther) > 0:
            right = centre
        else:
            left = centre
    farther = np.where(low + high < 2 * centre, low, high)
    return float(weights @ np.square(farther - centre))
