"""The paper's bounds as printed, and the naive twin of M_sigma: only for oracles and coverage."""

from __future__ import annotations

import numpy as np

from lethe.statistics.bands import dkw


def grid_variance_upper(ordered: np.ndarray, grid: np.ndarray, e: float) -> float:
    """One prompt on a grid from 0 to 1: eta_{K-1} + sum d_i F(tau_i), F the upper band where d_i > 0, else the lower one.

    The paper prints a further term -eta_0 F(tau_0), which omits the mass at 0; with that term the value is not a bound.
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
    """(upper, lower) of the mean as the paper prints them: a fixed grid, the two-sided band (the paper's Metric 3).

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

    The extra term -eta_0 F(tau_0) removes the mass at 0 without restoring its distance from the mean. On fair coins
    the printed value misses the true variance in every run. Use it only for comparison with published numbers.
    """
    cdf, e = np.searchsorted(ordered, grid, side="right") / len(ordered), dkw(len(ordered), alpha, sides=2)
    below = np.maximum(cdf - e, 0)
    centres = printed_mean(ordered, grid, alpha)
    farthest = np.maximum.reduce([np.square(grid - centre) for centre in centres])
    eta = np.maximum(farthest[:-1], farthest[1:])
    return float(grid_variance_upper(ordered, grid, e) - eta[0] * below[0])
