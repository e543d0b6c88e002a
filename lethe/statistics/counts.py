"""Counted leaks of each question: their bounds by Clopper-Pearson, and leak@k, a function of the leak probability."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.bounds import binary_lower, binary_upper, pooled_lower, pooled_upper


def rate_bounds(
    leaks: ArrayLike, n: ArrayLike, alpha: float, missing: ArrayLike = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Clopper-Pearson bounds (lower, upper) of each leak probability, each one-sided at alpha.

    Parameters
    ----------
    leaks, n
        Leaks and draws of each question: arrays of one shape, or numbers.
    alpha
        Error probability of each bound.
    missing
        Missing answers of each question: clean in the lower bound, leaks in the upper bound.

    Examples
    --------
    >>> lower, upper = rate_bounds(np.array([3, 3]), np.array([1024, 1024]), 0.01, np.array([0, 10]))
    >>> lower.round(4).tolist(), upper.round(4).tolist()
    ([0.0004, 0.0004], [0.0098, 0.0234])
    """
    leaks, n, missing = np.broadcast_arrays(leaks, n, missing)
    lower, upper = np.empty(leaks.shape), np.empty(leaks.shape)
    for size in np.unique(n):
        rows = n == size
        lower[rows] = binary_lower(leaks[rows], int(size), alpha)
        upper[rows] = binary_upper(leaks[rows] + missing[rows], int(size), alpha)
    return lower, upper


def pooled_bounds(
    leaks: ArrayLike, n: ArrayLike, alpha: float, missing: ArrayLike = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (lower, upper) of the average leak probability over questions with equal n, each one-sided at alpha, shape (1,).

    Those of `lethe.statistics.bounds.pooled_upper` and `pooled_lower`; of one question Clopper-Pearson's.

    Parameters
    ----------
    leaks, n, alpha, missing
        As in `rate_bounds`, one entry per question.

    Examples
    --------
    >>> lower, upper = pooled_bounds([1, 0], [64, 64], 0.05)
    >>> lower.tolist() == [0.05 / 128], upper.round(4).tolist()
    (True, [0.0365])
    """
    several = np.size(leaks) > 1
    low, high = (pooled_lower, pooled_upper) if several else (binary_lower, binary_upper)
    hits, total, gone = (np.sum(np.broadcast_to(each, np.shape(leaks))) for each in (leaks, n, missing))
    return np.atleast_1d(low(hits, int(total), alpha)), np.atleast_1d(high(hits + gone, int(total), alpha))


def at_least_once(p: ArrayLike, ks: ArrayLike) -> np.ndarray:
    """1 - (1 - p)^k for every p and k, to full relative precision at any p.

    Parameters
    ----------
    p : array of shape (...)
        Probabilities in [0, 1]; NaN stays NaN.
    ks : array of shape (K,)
        Numbers of answers, each at least 1.

    Returns
    -------
    array of shape (..., K)

    Examples
    --------
    >>> [f"{value:.8g}" for value in at_least_once(1e-12, [1, 2, 10**6])]
    ['1e-12', '2e-12', '9.999995e-07']
    """
    p, k = np.asarray(p, dtype=np.float64)[..., None], np.asarray(ks, dtype=np.float64)
    with np.errstate(divide="ignore"):  # p = 1
        return np.where(k == 1, p, -np.expm1(k * np.log1p(-p)))  # for k = 1 the logarithm would round p


def unbiased(leaks: ArrayLike, n: ArrayLike, ks: ArrayLike) -> np.ndarray:
    """The unbiased estimate of leak@k: the share of the k-subsets of a question's n answers that contain a leak.

    Parameters
    ----------
    leaks, n : array of shape (questions,)
        Leaking and scored answers per question; NaN leaks stay NaN.
    ks : array of shape (K,)
        Numbers of answers, each at least 1.

    Returns
    -------
    array of shape (questions, K)
        1 - C(n - c, k) / C(n, k), NaN where k > n.

    Examples
    --------
    >>> unbiased([1, 5], [10, 10], [1, 5, 10, 11]).round(3).tolist()
    [[0.1, 0.5, 1.0, nan], [0.5, 0.996, 1.0, nan]]
    """
    leaks, n = np.asarray(leaks, dtype=np.float64), np.asarray(n)
    found = np.full((len(leaks), len(np.asarray(ks))), np.nan)
    for size in np.unique(n):
        rows = np.flatnonzero((n == size) & ~np.isnan(leaks))
        counts = leaks[rows].astype(np.int64)
        for place, k in enumerate(np.asarray(ks)):
            if k <= size and len(rows):
                # The ratio is the product of 1 - k / j over j = n - c + 1, ..., n; if c > n - k, no subset is clean.
                longest = min(int(counts.max()), int(size - k))
                logs = np.log1p(-k / np.arange(size, size - longest, -1.0))
                sums = np.concatenate([[0.0], np.cumsum(logs)])
                estimate = -np.expm1(sums[np.minimum(counts, longest)])
                found[rows, place] = np.where(counts > size - k, 1.0, estimate) + 0.0  # no negative zero
    return found


def check_queries(ks: ArrayLike) -> np.ndarray:
    """Return the numbers of answers as integers of shape (K,), each at least 1."""
    k = np.asarray(ks)
    if k.ndim != 1 or (k.size and (k.min() < 1 or (k != np.floor(k)).any())):
        raise BadValue("k", ks, "whole numbers of at least 1")
    return k.astype(np.int64)


def check_counts(
    leaks: ArrayLike, n: ArrayLike, missing: ArrayLike = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return checked whole counts of equal length.

    Parameters
    ----------
    leaks
        Shape (P,), at least 0; NaN is allowed.
    n
        One number, or one per question, at least 1.
    missing
        One number, or one per question; leaks + missing must be at most n.

    Raises
    ------
    BadValue
        If shapes or counts do not fit.
    """
    leaks = np.atleast_1d(np.asarray(leaks, dtype=np.float64))
    try:
        n, missing = np.broadcast_to(n, leaks.shape), np.broadcast_to(missing, leaks.shape)
    except ValueError:
        raise BadValue(
            "n and missing", (np.shape(n), np.shape(missing)), f"of shape {leaks.shape}, the shape of leaks"
        ) from None
    if leaks.ndim != 1:
        raise BadValue("leaks", f"shape {leaks.shape}", "one count per question")
    for name, counts, least in (("leaks", leaks, 0), ("n", n, 1), ("missing", missing, 0)):
        wrong = (counts < least) | (np.floor(counts) != counts) & ~(np.isnan(counts) & (name == "leaks"))
        if wrong.any():
            raise BadValue(name, counts[wrong][0].item(), f"a whole number of at least {least}")
    over = leaks + missing > n
    if over.any():
        got = f"{leaks[over][0]:g} + {missing[over][0]:g} of {n[over][0]:g}"
        raise BadValue("leaks and missing", got, "together at most n")
    return leaks, n.astype(np.int64), missing.astype(np.int64)
