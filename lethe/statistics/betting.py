"""Bounds of a mean and of a standard deviation by betting (Waudby-Smith and Ramdas 2024, section 4).

A bet against the claim "the mean is at least m" can refute the claim. With stakes lambda_t fixed before X_t is seen, the
capital prod (1 + lambda_t (m - X_t)) is a non-negative supermartingale if the mean is at least m, and so is the average of
two capitals. By Ville's inequality such a capital ever reaches 1 / alpha with probability at most alpha. The bound is the
smallest refuted m. The bound depends on the order of the draws, which must be the order of sampling.

The two capitals differ in the largest stake (`CAPS`). Their stakes follow from what is still missing and what is still to
come (Voráček and Orabona 2025): sqrt(2 (ln(2 / alpha) - log capital) / (draws left * variance)), where the capital is that
at the start of a block of draws. The claims refuted in this way are all m from a point on. For let F(c) be the log capital at
the end of a block that starts with log capital c below G = ln(2 / alpha). As u / (1 + u) <= ln(1 + u), the derivative of F is
at least 1 - (F - c) / (2 (G - c)), hence not negative while F <= 2 G - c, so F cannot fall below G once it is there. Every
factor grows with m, so by induction a larger m has more capital at the end of each block, until it is refuted.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from lethe.statistics.checks import check_alpha, check_scores

# The largest stakes, as shares of the largest stake that cannot lose all capital; fixed beforehand.
CAPS = (0.5, 0.95)
PRIOR_MEAN, PRIOR_VARIANCE = 0.5, 0.25
LEAST_MISSING = 0.3  # log capital: a bet that has almost reached its goal goes on with stakes of this size
BLOCKS = 64  # of equally many draws, but none longer than LONGEST, with which no product of factors overflows
LONGEST = 64
TOLERANCE = 1e-10


def mean_upper(scores: np.ndarray, alpha: float, recomputed: bool = True) -> np.ndarray:
    """Upper bound of each row's mean, with probability 1 - alpha for that row, from independent draws in sampling order, (P,
    n).

    The stakes follow the capital if ``recomputed``; otherwise the bound inverts `p_value`. Source: Waudby-Smith and Ramdas
    (2024), section 4; Voráček and Orabona (2025), "STaR-Bets".

    >>> mean_upper(np.zeros((1, 100)), alpha=0.05).round(4).tolist()
    [0.0366]
    """
    scores = check_scores(scores)
    check_alpha(alpha)
    return _smallest_refuted(scores, alpha, recomputed)


def mean_lower(scores: np.ndarray, alpha: float, recomputed: bool = True) -> np.ndarray:
    """(P,) lower bound of each row's mean: 1 minus the upper bound of the mean of 1 - X."""
    return 1.0 - mean_upper(1.0 - check_scores(scores), alpha, recomputed)


def sd_upper(scores: np.ndarray, alpha: float, missing: Literal["refuse", "worst"] = "refuse") -> np.ndarray:
    """(P,) upper bound of each row's standard deviation, with probability 1 - alpha; not capped at the trivial 1/2.

    Bets on `predictable_squares`, whose mean given the past is at least the variance. With ``missing`` "worst" a NaN counts
    as the score farthest from the centre.
    """
    squares = predictable_squares(check_scores(scores, missing))
    check_alpha(alpha)
    return np.sqrt(_smallest_refuted(squares, alpha))


def predictable_squares(scores: np.ndarray) -> np.ndarray:
    """(P, n) Z_t = (X_t - c_t)^2, where c_t is the mean of the earlier draws and one prior observation of 1/2.

    For any c_t, E[Z_t | past] = variance + (mean - c_t)^2. For NaN, Z_t is the largest value that a score could give.
    """
    judged = ~np.isnan(scores)
    values = np.where(judged, scores, 0.0)
    centres = PRIOR_MEAN + np.cumsum(values, axis=1) - values
    centres /= 1 + np.cumsum(judged, axis=1) - judged
    return np.square(np.where(judged, scores - centres, np.maximum(centres, 1 - centres)))


def _smallest_refuted(values: np.ndarray, alpha: float, recomputed: bool = True) -> np.ndarray:
    """The smallest mean at which the log capital reaches ln(1 / alpha), approached from the refuted side.

    Chandrupatla's method takes about ten evaluations per row, and bisection about fifty.
    """
    draws, goal = np.ascontiguousarray(values.T), math.log(1 / alpha)
    sizes = _sizes(draws, recomputed)

    bounds = np.ones(len(values))
    at_one = _log_capital(bounds, draws, sizes, goal, recomputed) - goal

    def excess(mean: np.ndarray, place: np.ndarray) -> np.ndarray:
        if not mean.any():  # a bet against 0 never gains
            return np.full(len(mean), -goal)
        if (mean == 1).all():
            return at_one[place]
        own = (draws, sizes) if len(place) == len(values) else (draws[:, place], sizes[:, place])
        return _log_capital(mean, *own, goal, recomputed) - goal

    refutable = np.flatnonzero(at_one >= 0)
    if refutable.size:
        from scipy.optimize.elementwise import find_root  # a quarter of a second to import

        found = find_root(
            excess,
            (np.zeros(refutable.size), np.ones(refutable.size)),
            args=(refutable,),
            tolerances={"xatol": TOLERANCE, "xrtol": 0},
        )
        (left, right), (below, _) = found.bracket, found.f_bracket
        bounds[refutable] = np.where(below >= 0, left, right)
    return bounds


def p_value(scores: np.ndarray, mean: float | np.ndarray, alpha: float) -> np.ndarray:
    """(P,) p-value of the hypothesis that each row's mean is at least the given mean, from draws in sampling order.

    The stakes are sized for ``alpha``; the p-value is valid at any level. The stakes do not follow the capital, so that the
    p-value falls with the mean at every level.
    """
    scores = check_scores(scores)
    check_alpha(alpha)
    goal, draws = math.log(1 / alpha), np.ascontiguousarray(scores.T)
    means = np.full(len(scores), mean)
    return np.minimum(1.0, np.exp(-_log_capital(means, draws, _sizes(draws, False), goal, recomputed=False)))


def _log_capital(
    mean: np.ndarray, draws: np.ndarray, sizes: np.ndarray, goal: float, recomputed: bool
) -> np.ndarray:
    """(P,) the largest log capital at the end of a block that the bets against each column's ``mean`` reach.

    ``draws`` and ``sizes`` have the shape (n, P). A bet against m = 1 that wins every draw has stakes without a cap, and a
    bet against m = 0 never gains.
    """
    n, step = len(draws), _block(len(draws))
    with np.errstate(divide="ignore"):
        caps = np.array(CAPS)[:, None] / (1 - mean)
    logs, target, path = np.zeros(caps.shape), goal + math.log(len(CAPS)), []
    missing, factors = np.full(caps.shape, goal), np.empty((step, *caps.shape))
    for start in range(0, n, step):
        block, own = slice(start, start + step), factors[: n - start]
        if recomputed:
            missing = np.maximum(target - logs, LEAST_MISSING)
        np.multiply(sizes[block, None], np.sqrt(missing), out=own)
        np.minimum(own, caps, out=own)
        own *= (mean - draws[block])[:, None]
        own += 1
        logs = logs + np.log(own.prod(axis=0))
        path.append(logs)
    return np.maximum(np.max(np.logaddexp(*np.stack(path, axis=1)) - math.log(len(CAPS)), axis=0), 0.0)


def _sizes(draws: np.ndarray, recomputed: bool) -> np.ndarray:
    """(n, P) sqrt(2 / (draws left * s2_{t-1})), a stake by the root of the missing log capital."""
    n, counts = len(draws), np.arange(2, len(draws) + 2)[:, None]
    means = (PRIOR_MEAN + np.cumsum(draws, axis=0)) / counts
    variances = (PRIOR_VARIANCE + np.cumsum(np.square(draws - means), axis=0)) / counts
    before = np.concatenate([np.full((1, draws.shape[1]), PRIOR_VARIANCE), variances[:-1]])
    left = n - np.arange(n)[:, None] // _block(n) * _block(n) if recomputed else n
    return np.sqrt(2 / (left * before))


def _block(n: int) -> int:
    return min(max(n // BLOCKS, 1), LONGEST)
