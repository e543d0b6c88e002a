"""Tails of the binomial distribution on the log scale, without underflow."""

from __future__ import annotations

import numpy as np
from scipy import special

# Below this the incomplete beta function approaches the smallest double, so the series is used.
SMALLEST_TAIL = 1e-250


def log_cdf(u: int, n: int, p: np.ndarray | float) -> np.ndarray:
    """ln P(Binomial(n, p) <= u), elementwise; exact even far below the smallest double.

    Parameters
    ----------
    u
        The count, at least 0.
    n
        The number of trials.
    p
        Probabilities of any shape.
    """
    p = np.asarray(p, dtype=np.float64)
    if u >= n:
        return np.zeros(p.shape)
    tail = special.betaincc(u + 1, n - u, p)
    with np.errstate(divide="ignore"):
        value = np.where(tail < 0.5, np.log(tail), np.log1p(-special.betainc(u + 1, n - u, p)))
    deep = tail < SMALLEST_TAIL
    if deep.any():
        value[deep] = _log_cdf_series(u, n, p[deep])
    return value


def log_pmf(k: np.ndarray | int, n: int, p: np.ndarray | float) -> np.ndarray:
    """ln P(Binomial(n, p) = k), elementwise.

    Further parameters are those of `log_cdf`.

    Parameters
    ----------
    k
        Counts from 0 to n.
    """
    return -np.log1p(n) - special.betaln(n - k + 1, k + 1) + special.xlogy(k, p) + special.xlog1py(n - k, -p)


def _log_cdf_series(u: int, n: int, p: np.ndarray) -> np.ndarray:
    """ln of pmf(u) (1 + pmf(u-1)/pmf(u) + ...): deep in the lower tail the ratios fall geometrically."""
    odds = (1 - p) / p
    total = np.ones(p.shape)
    term = np.ones(p.shape)
    for k in range(u, 0, -1):
        term = term * odds * (k / (n - k + 1))
        total = total + term
        if np.all(term < 1e-18 * total):
            break
    return log_pmf(u, n, p) + np.log(total)
