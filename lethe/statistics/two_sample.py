"""Comparisons of two samples: the exact Kolmogorov-Smirnov test, and the area under the ROC curve with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import rel_entr

from lethe.errors import BadValue
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.membership import auc


@dataclass(frozen=True)
class KsTest:
    """Two-sided two-sample Kolmogorov-Smirnov test: ``statistic`` in [0, 1], ``p_value`` in (0, 1]."""

    statistic: float
    p_value: float
    n_first: int
    n_second: int
    method: str = "exact"
    side: str = "two-sided"
    assumes: str = "independent values, the same distribution within a sample; with ties the p-value is too large"


def ks_test(first: np.ndarray, second: np.ndarray) -> KsTest:
    """Test that two samples, shapes (m,) and (n,), come from one distribution.

    Without ties the p-value is exact, with a small relative error down to the smallest float. The p-value is the probability
    that a random lattice path from (0, 0) to (m, n) hits the region where the two empirical distribution functions differ by
    at least the observed statistic. Conditioning on the last step of the path gives this probability as a sum of positive
    terms. Time O(m (m + n)), memory O(m). Source: Hodges (1958); the null distribution is that of the method "exact" of
    scipy.stats.ks_2samp. Raises `BadValue` for an empty sample or a NaN.
    """
    first, second = _sample("first", first), _sample("second", second)
    m, n = len(first), len(second)
    points = np.concatenate([first, second])
    # Use the whole numbers m n (F_m - F_n), so that the comparison with the statistic is exact.
    gaps = n * np.searchsorted(first, points, side="right") - m * np.searchsorted(second, points, side="right")
    gap = int(np.abs(gaps).max())
    return KsTest(gap / (m * n), _hitting_probability(m, n, gap), m, n)


def _hitting_probability(m: int, n: int, gap: int) -> float:
    """Probability that a random lattice path to (m, n) meets a point (i, j) with |n i - m j| >= gap."""
    if gap == 0:
        return 1.0
    rows = np.arange(m + 1)
    hit = np.zeros(m + 1)  # of the point (i, step - i), for paths that end there
    for step in range(1, m + n + 1):
        from_left = np.concatenate([[0.0], rows[1:] / step * hit[:-1]])
        hit = from_left + (step - rows) / step * hit
        hit[np.abs(n * rows - m * (step - rows)) >= gap] = 1.0
        # No path to (m, n) passes a point outside the rectangle.
        hit[(rows > step) | (step - rows > n)] = 0.0
    return float(hit[m])


@dataclass(frozen=True)
class AucInterval:
    """Area under the ROC curve, P[member > nonmember] + P[equal] / 2, with a two-sided interval."""

    value: float
    low: float
    high: float
    n_members: int
    n_nonmembers: int
    alpha: float
    method: str
    assumes: str
    side: str = "two-sided"

    def bounds(self) -> tuple[Bound, Bound]:
        """The lower and the upper end, each a bound at half of alpha."""
        rest = (self.alpha / 2, Covers.HELD_OUT, self.assumes, self.method, min(self.n_members, self.n_nonmembers))
        return Bound(self.low, "lower", *rest), Bound(self.high, "upper", *rest)


def auc_interval(members: np.ndarray, nonmembers: np.ndarray, alpha: float = 0.05) -> AucInterval:
    """The AUC of membership scores with a two-sided interval.

    Parameters
    ----------
    members, nonmembers : arrays of shape (m,) and (n,)
        Scores; a higher score means that the point is more likely a member.
    alpha : float
        Error probability of the interval, strictly between 0 and 1.

    Returns
    -------
    AucInterval

    Raises
    ------
    BadValue
        If a sample is empty or contains NaN, or alpha is out of range.

    Notes
    -----
    Assumes independent values in each sample. The interval holds at every sample size, including with ties. The AUC is an
    average of averages of min(m, n) independent terms in [0, 1] (Hoeffding 1963, section 5b), for which the Chernoff bound
    min(m, n) kl(AUC-hat, AUC) <= ln(2 / alpha) holds.

    Examples
    --------
    >>> found = auc_interval(np.arange(20.0, 70.0), np.arange(50.0))
    >>> round(found.value, 2), round(found.low, 3), round(found.high, 3)
    (0.82, 0.646, 0.934)
    """
    members, nonmembers = _sample("members", members), _sample("nonmembers", nonmembers)
    if not 0 < alpha < 1:
        raise BadValue("alpha", alpha, "a number strictly between 0 and 1")
    value = auc(members, nonmembers)
    level = math.log(2 / alpha) / min(len(members), len(nonmembers))
    low, high = 1 - kl_upper(1 - value, level), kl_upper(value, level)
    assumes = "independent values in each sample"
    return AucInterval(value, low, high, len(members), len(nonmembers), alpha, "kl", assumes)


def kl_upper(value: float, level: float) -> float:
    """The largest q >= value with kl(value, q) <= level, by bisection, rounded up."""
    low, high = value, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if rel_entr(value, middle) + rel_entr(1 - value, 1 - middle) <= level:
            low = middle
        else:
            high = middle
    return high


def _sample(name: str, values: np.ndarray) -> np.ndarray:
    """The values, sorted; raises `BadValue` for no values or NaN."""
    values = np.sort(np.asarray(values, dtype=np.float64).ravel())
    if not len(values):
        raise BadValue(name, "no values", "at least one value")
    if np.isnan(values[-1]):
        raise BadValue(name, "NaN", "numbers")
    return values
