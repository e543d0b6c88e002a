"""Bounds of a mean and of a standard deviation by betting (Waudby-Smith and Ramdas 2024, section 4).

A bet against the claim "the mean is at least m" can refute the claim. With stakes lambda_t fixed before X_t is seen, the
capital prod (1 + lambda_t (m - X_t)) is a non-negative supermartingale if the mean is at least m. By Ville's inequality
the capital ever reaches 1 / alpha with probability at most alpha. The bound is the smallest refuted m. The bound depends
on the order of the draws, which must be the order of sampling.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from lethe.statistics.checks import check_alpha, check_scores

CAP = 0.5  # the largest stake, as a share of the largest stake that cannot lose all capital; fixed beforehand
PRIOR_MEAN, PRIOR_VARIANCE = 0.5, 0.25
TOLERANCE = 1e-13


def mean_upper(scores: np.ndarray, alpha: float, horizon: int | None = None) -> np.ndarray:
    """Upper bound of each row's mean, with probability 1 - alpha for that row.

    Parameters
    ----------
    scores : array of shape (P, n)
        Independent draws in [0, 1], in sampling order.
    alpha : float
        Error probability of each bound, above 0 and up to 0.5.
    horizon : int, optional
        The number of draws for which the stakes are sized (default n). If the horizon was fixed beforehand, the bound holds
        at any stopping time.

    Returns
    -------
    array of shape (P,)
        Bounds in [0, 1].

    Notes
    -----
    Assumes nothing about the distribution of the draws. Source: Waudby-Smith and Ramdas (2024), section 4.

    Examples
    --------
    >>> mean_upper(np.zeros((1, 100)), alpha=0.05).round(4).tolist()
    [0.0574]
    """
    scores = check_scores(scores)
    check_alpha(alpha)
    return _smallest_refuted(scores, alpha, horizon or scores.shape[1])


def mean_lower(scores: np.ndarray, alpha: float, horizon: int | None = None) -> np.ndarray:
    """(P,) lower bound of each row's mean, with probability 1 - alpha: 1 minus the upper bound of the mean of 1 - X.

    The parameters are those of `mean_upper`.
    """
    return 1.0 - mean_upper(1.0 - check_scores(scores), alpha, horizon)


def sd_upper(
    scores: np.ndarray, alpha: float, horizon: int | None = None, missing: Literal["refuse", "worst"] = "refuse"
) -> np.ndarray:
    """(P,) upper bound of each row's standard deviation, with probability 1 - alpha; not capped at the trivial 1/2.

    Bets on `predictable_squares`, whose mean given the past is at least the variance. Further parameters are those of
    `mean_upper`.

    Parameters
    ----------
    missing
        "worst" counts a NaN as the score farthest from the centre; "refuse" raises `BadValue`.
    """
    squares = predictable_squares(check_scores(scores, missing))
    check_alpha(alpha)
    return np.sqrt(_smallest_refuted(squares, alpha, horizon or scores.shape[-1]))


def predictable_squares(scores: np.ndarray) -> np.ndarray:
    """(P, n) Z_t = (X_t - c_t)^2, where c_t is the mean of the earlier draws and one prior observation of 1/2.

    For any c_t, E[Z_t | past] = variance + (mean - c_t)^2. For NaN, Z_t is the largest value that a score could give.
    """
    judged = ~np.isnan(scores)
    values = np.where(judged, scores, 0.0)
    centres = PRIOR_MEAN + np.cumsum(values, axis=1) - values
    centres /= 1 + np.cumsum(judged, axis=1) - judged
    return np.square(np.where(judged, scores - centres, np.maximum(centres, 1 - centres)))


def _smallest_refuted(values: np.ndarray, alpha: float, horizon: int) -> np.ndarray:
    """The root of the best log capital minus ln(1 / alpha), approached from the refuted side.

    Every factor grows with m, so there is only one root. Chandrupatla's method takes about ten evaluations per row, and
    bisection about fifty.
    """
    stakes, goal = _stakes(values, alpha, horizon), math.log(1 / alpha)
    bounds, rows = np.ones(len(values)), np.arange(len(values))
    refutable = np.flatnonzero(_best_log_capital(np.ones(len(values)), values, stakes) > goal)
    if refutable.size:
        from scipy.optimize.elementwise import find_root  # a quarter of a second to import

        found = find_root(
            lambda mean, row: _best_log_capital(mean, values[row], stakes[row]) - goal,
            (np.zeros(refutable.size), np.ones(refutable.size)),
            args=(rows[refutable],),
            tolerances={"xatol": TOLERANCE, "xrtol": 0},
        )
        (left, right), (below, _) = found.bracket, found.f_bracket
        bounds[refutable] = np.where(below >= 0, left, right)
    return bounds


def p_value(scores: np.ndarray, mean: float | np.ndarray, alpha: float) -> np.ndarray:
    """(P,) p-value of the hypothesis that each row's mean is at least the given mean.

    Parameters
    ----------
    scores
        Independent draws in [0, 1], in sampling order, shape (P, n).
    mean
        One number, or one per row, in [0, 1].
    alpha
        The level for which the stakes are sized; the p-value is valid at any level.
    """
    scores = check_scores(scores)
    check_alpha(alpha)
    stakes = _stakes(scores, alpha, scores.shape[1])
    return np.minimum(1.0, np.exp(-_best_log_capital(np.full(len(scores), mean), scores, stakes)))


def _best_log_capital(mean: np.ndarray, values: np.ndarray, stakes: np.ndarray) -> np.ndarray:
    """(P,) the largest log capital that the bets against each row's ``mean`` reach at any time."""
    mean = mean[:, None]
    with np.errstate(divide="ignore"):
        wagers = np.minimum(stakes, CAP / (1 - mean))
    wagers *= mean - values
    np.log1p(wagers, out=wagers)
    return np.cumsum(wagers, axis=1, out=wagers).max(axis=1)


def _stakes(values: np.ndarray, alpha: float, horizon: int) -> np.ndarray:
    """lambda_t before the cap: sqrt(2 ln(1/alpha) / (horizon s2_{t-1})), where s2_{t-1} uses only the values before t."""
    counts = np.arange(2, values.shape[1] + 2)
    means = (PRIOR_MEAN + np.cumsum(values, axis=1)) / counts
    variances = (PRIOR_VARIANCE + np.cumsum(np.square(values - means), axis=1)) / counts
    before = np.concatenate([np.full((len(values), 1), PRIOR_VARIANCE), variances[:, :-1]], axis=1)
    return np.sqrt(2 * math.log(1 / alpha) / (horizon * before))
