"""The paper's metrics of a whole output distribution, corrected where its text errs (papers 000 and 001, section 4).

For one prompt, X_1..X_n in [0, 1] are the leakages of n independent answers and F_n their empirical distribution
function. Every bound holds with probability 1 - alpha over these draws for its own prompt; nothing is assumed of the
distribution. All functions take ``scores`` of shape (prompts, n) and work on all prompts in one call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from stages.statistics.bands import dkw
from stages.statistics.checks import check_alpha, check_scores

SIGMA_GRID = np.linspace(0.0, 1.0, 101)  # cells of .01, joined with the data points


@dataclass(frozen=True)
class PaperBounds:
    """The paper's values of each prompt; arrays of shape (P,), tables (P, T) for T thresholds.

    Each bound holds with probability 1 - ``alpha`` for its one prompt, assuming independent draws: ``m_bin`` (NaN unless
    all scores of the prompt are 0 or 1), ``m_gen`` on P(X > x) for all x at once (``empirical_tail`` is the share among
    the draws), ``m_mu`` on the mean, ``m_sigma`` on the standard deviation; ``*_lower`` are the lower sides, each
    one-sided on its own. ``ed_score`` is a development score with no guarantee.
    """

    n: int
    alpha: float
    thresholds: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    max: np.ndarray
    ed_score: np.ndarray
    m_bin: np.ndarray
    m_bin_lower: np.ndarray
    empirical_tail: np.ndarray
    m_gen: np.ndarray
    m_gen_lower: np.ndarray
    m_mu: np.ndarray
    m_mu_lower: np.ndarray
    m_sigma: np.ndarray
    assumes: str = "independent draws of one prompt"


def paper_bounds(scores: np.ndarray, alpha: float, thresholds: np.ndarray, rho: float = 2.0) -> PaperBounds:
    """All of the paper's metrics for scores (P, n) in [0, 1]; see `PaperBounds`.

    Raises `BadValue` for scores outside [0, 1], NaN, no scores, or alpha outside (0, .5].
    """
    scores = check_scores(scores)
    check_alpha(alpha)
    thresholds = np.asarray(thresholds, dtype=np.float64)
    ordered = np.sort(scores, axis=1)
    n, mean, sd = scores.shape[1], scores.mean(axis=1), scores.std(axis=1)
    successes = np.where(((scores == 0) | (scores == 1)).all(axis=1), scores.sum(axis=1), np.nan)
    above = tail(ordered, thresholds)
    e = dkw(n, alpha)
    return PaperBounds(
        n=n,
        alpha=alpha,
        thresholds=thresholds,
        mean=mean,
        sd=sd,
        max=ordered[:, -1],
        ed_score=mean + rho * sd,
        m_bin=binary_upper(successes, n, alpha),
        m_bin_lower=binary_lower(successes, n, alpha),
        empirical_tail=above,
        m_gen=np.minimum(1.0, above + e),
        m_gen_lower=np.maximum(0.0, above - e),
        m_mu=mean_upper(ordered, e),
        m_mu_lower=mean_lower(ordered, e),
        m_sigma=np.sqrt(variance_upper(ordered, dkw(n, alpha, sides=2))),
    )


def binary_upper(successes: np.ndarray, n: int, alpha: float) -> np.ndarray:
    """M_bin: the Clopper-Pearson upper bound for ``successes`` of ``n`` (paper 001, Metric 1); NaN stays NaN."""
    successes = np.asarray(successes, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(successes >= n, 1.0, betaincinv(successes + 1, np.maximum(n - successes, 1), 1 - alpha))


def binary_lower(successes: np.ndarray, n: int, alpha: float) -> np.ndarray:
    """The Clopper-Pearson lower bound, one-sided at alpha."""
    successes = np.asarray(successes, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(successes == 0, 0.0, betaincinv(np.maximum(successes, 1), n - successes + 1, alpha)) + (
            0.0 * successes  # NaN successes stay NaN
        )


def tail(ordered: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(P, T) share of each row of sorted scores strictly above each threshold."""
    n = ordered.shape[1]
    return np.stack([1 - np.searchsorted(row, thresholds, side="right") / n for row in ordered])


def mean_upper(ordered: np.ndarray, e: float) -> np.ndarray:
    """M_mu: 1 - integral of max(F_n - e, 0), on the distinct data points, 0 and 1 (paper 001, Metric 3).

    Between two data points F_n is constant, so this grid is the best one. A repeated point spans a cell of no width.
    """
    n = ordered.shape[1]
    widths = np.diff(ordered, axis=1, append=1.0)
    return 1 - widths @ np.maximum(np.arange(1, n + 1) / n - e, 0)


def mean_lower(ordered: np.ndarray, e: float) -> np.ndarray:
    """The lower side: 1 - sum (tau_i - tau_{i-1}) min(F_n(tau_i) + e, 1) on the distinct data points, 0 and 1.

    The paper takes F_n at the right end of a cell: weak where the points are few (0 for scores that are all 0 or 1).
    """
    n = ordered.shape[1]
    widths = np.diff(ordered, axis=1, prepend=0.0, append=1.0)
    # F_n at the cell's right end; a repeated point counts all its copies, its cell being the first copy's.
    at_right = np.empty((len(ordered), n + 1))
    at_right[:, :n] = [np.searchsorted(row, row, side="right") / n for row in ordered]
    at_right[:, n] = 1.0
    return np.maximum(0.0, 1 - (widths * np.minimum(at_right + e, 1)).sum(axis=1))


def variance_upper(ordered: np.ndarray, e: float) -> np.ndarray:
    """M_sigma squared, in the corrected form (not capped at 1/4), on the data points joined with cells of .01."""
    return np.array([grid_variance_upper(row, np.union1d(row, SIGMA_GRID), e) for row in ordered])


def grid_variance_upper(ordered: np.ndarray, grid: np.ndarray, e: float) -> float:
    """One prompt on a grid from 0 to 1: eta_{K-1} + sum d_i F(tau_i), F the upper band where d_i > 0, else the lower one.

    The paper prints a further term -eta_0 F(tau_0), which forgets the mass at 0: with it this is no bound.
    """
    cdf = np.searchsorted(ordered, grid, side="right") / len(ordered)
    above, below = np.minimum(cdf + e, 1), np.maximum(cdf - e, 0)
    widths = np.diff(grid)
    centres = 1 - widths @ above[1:], 1 - widths @ below[:-1]  # lower and upper bound of the mean
    farthest = np.maximum.reduce([np.square(grid - max(0.0, centre)) for centre in centres])
    eta = np.maximum(farthest[:-1], farthest[1:])
    steps = eta[:-1] - eta[1:]
    return eta[-1] + np.sum(steps * np.where(steps > 0, above[1:-1], below[1:-1]))


def printed_mean(ordered: np.ndarray, grid: np.ndarray, alpha: float, clip: bool = True) -> tuple[float, float]:
    """(upper, lower) of the mean as the paper prints them: a fixed grid, the two-sided band (paper 001, Metric 3).

    Valid but loose, for comparison with published numbers; unclipped values may leave [0, 1].
    """
    cdf, e = np.searchsorted(ordered, grid, side="right") / len(ordered), dkw(len(ordered), alpha, sides=2)
    below, above = cdf - e, cdf + e
    if clip:
        below, above = np.maximum(below, 0), np.minimum(above, 1)
    widths = np.diff(grid)
    return float(1 - widths @ below[:-1]), float(1 - widths @ above[1:])


def printed_variance_no_bound(ordered: np.ndarray, grid: np.ndarray, alpha: float) -> float:
    """M_sigma squared as the paper prints it, which is NOT a bound where P(X = 0) > 0.

    Its extra term -eta_0 F(tau_0) takes the mass at 0 away without putting its distance from the mean back. On fair
    coins it misses the true variance in every run. Only for comparison with published numbers.
    """
    cdf, e = np.searchsorted(ordered, grid, side="right") / len(ordered), dkw(len(ordered), alpha, sides=2)
    below = np.maximum(cdf - e, 0)
    centres = printed_mean(ordered, grid, alpha)
    farthest = np.maximum.reduce([np.square(grid - centre) for centre in centres])
    eta = np.maximum(farthest[:-1], farthest[1:])
    return float(grid_variance_upper(ordered, grid, e) - eta[0] * below[0])
