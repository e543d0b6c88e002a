"""Tighter valid bounds, each by a method fixed beforehand: taking the smaller of two bounds at one alpha is not valid."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lethe.statistics import betting
from lethe.statistics.bands import LARGEST_BERK_JONES, berk_jones, berk_jones_eta, dkw
from lethe.statistics.bound import Assumes, Bound, Covers, Side, bounds_of
from lethe.statistics.bounds import counts_up_to
from lethe.statistics.checks import check_alpha, check_scores

PROVEN: dict[str, tuple[Side, str]] = {
    "mean_upper": ("upper", "betting"),
    "mean_lower": ("lower", "betting"),
    "sd_upper": ("upper", "betting with predictable centre"),
}


@dataclass(frozen=True)
class TighterBounds:
    """Tighter bounds of each prompt: arrays of shape (P,), and ``exceedance`` of shape (P, T) for T thresholds.

    Each bound holds with probability 1 - ``alpha`` for its own prompt, assuming independent draws in sampling order.
    ``mean_upper``, ``mean_lower`` and ``sd_upper`` use betting, each one-sided by itself. ``exceedance`` bounds P(X > x) for
    all x at once by ``exceedance_method`` ("berk-jones", or "dkw" above 20,000 draws).
    """

    n: int
    alpha: float
    thresholds: np.ndarray
    mean_upper: np.ndarray
    mean_lower: np.ndarray
    sd_upper: np.ndarray
    exceedance: np.ndarray
    exceedance_method: str
    assumes: str = Assumes.DRAWS_IN_ORDER

    def bounds(self, name: str) -> list[Bound]:
        """Each prompt's ``mean_upper``, ``mean_lower`` or ``sd_upper`` with its guarantee."""
        side, method = PROVEN[name]
        values = getattr(self, name).tolist()
        return bounds_of(values, side, self.alpha, Covers.ONE_PROMPT, self.assumes, method, self.n)

    def tables(self) -> list[list[Bound]]:
        """Each prompt's ``exceedance``, one bound per threshold."""
        method, assumes = f"{self.exceedance_method}, all thresholds at once", Assumes.DRAWS
        return [
            bounds_of(row, "upper", self.alpha, Covers.ONE_PROMPT, assumes, method, self.n)
            for row in self.exceedance.tolist()
        ]


def tighter_bounds(
    scores: np.ndarray,
    alpha: float,
    thresholds: np.ndarray,
    known: MutableMapping[tuple[int, float], float] | None = None,
    missing: Literal["refuse", "worst"] = "refuse",
) -> TighterBounds:
    """Compute all tighter bounds for each prompt.

    Parameters
    ----------
    scores : array of shape (P, n)
        Scores in [0, 1] in sampling order, one row per prompt; a vector is one prompt.
    alpha : float
        Error probability of each bound, above 0 and up to 0.5.
    thresholds : array of shape (T,)
        The x at which P(X > x) is bounded.
    known : mapping, optional
        Solved Berk-Jones levels by (n, alpha), read and extended.
    missing : {"refuse", "worst"}
        With "worst" a NaN counts as 1 in upper bounds, as 0 in lower bounds, and in ``sd_upper`` as the score farthest
        from the centre. With "refuse" a NaN is an error.

    Returns
    -------
    TighterBounds
        Arrays of shape (P,), and a table of shape (P, T).

    Raises
    ------
    BadValue
        If a score lies outside [0, 1] or is a refused NaN, there is no score, or alpha lies outside (0, 0.5].

    Notes
    -----
    Assumes independent draws in sampling order. Sources: Waudby-Smith and Ramdas (2024), section 4; Berk and Jones
    (1979).

    Examples
    --------
    >>> found = tighter_bounds(np.zeros((1, 100)), 0.05, thresholds=np.array([0.5]))
    >>> found.mean_upper.round(4).tolist(), found.exceedance.round(4).tolist()
    ([0.0366], [[0.0583]])
    """
    scores = check_scores(scores, missing)
    check_alpha(alpha)
    thresholds, n = np.asarray(thresholds, dtype=np.float64), scores.shape[1]
    method = "berk-jones" if n <= LARGEST_BERK_JONES else "dkw"
    if method == "berk-jones":
        below = berk_jones(n, berk_jones_eta(n, alpha, known))
    else:
        below = np.maximum(np.arange(1, n + 1) / n - dkw(n, alpha), 0)
    # F(x) is at least the band's value at the largest draw up to x; below the smallest draw, the band gives no information.
    below = np.concatenate([[0.0], below])
    absent = np.isnan(scores)
    high, low = (np.where(absent, fill, scores) for fill in (1.0, 0.0)) if absent.any() else (scores, scores)
    return TighterBounds(
        n=n,
        alpha=alpha,
        thresholds=thresholds,
        mean_upper=betting.mean_upper(high, alpha),
        mean_lower=betting.mean_lower(low, alpha),
        sd_upper=betting.sd_upper(scores, alpha, missing=missing),
        exceedance=1 - below[counts_up_to(np.sort(high, axis=1), thresholds)],
        exceedance_method=method,
    )
