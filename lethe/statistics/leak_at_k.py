"""Leak@k: the probability that at least one of k answers to a question leaks, for scores of 0 or 1.

An answer leaks with probability p, so k independent answers contain a leak with probability 1 - (1 - p)^k. The unbiased
estimate counts the subsets of the n drawn answers and needs k <= n. The band has no such limit: 1 - (1 - p)^k increases
with p, so the bounds of p give bounds for every k. The bands hold for all k at once, because they can only fail together.

Each side of a band holds by itself with probability 1 - alpha, as m_bin and m_bin_lower do (at k = 1 the band
consists of these two); both sides together hold with probability 1 - 2 alpha.

The estimate may lie above the band for k close to n: at k = n the estimate is 1 if any answer leaked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.checks import check_alpha

QUERIES = (*(digit * 10**power for power in range(6) for digit in (1, 2, 5)), 10**6)

# Turns bounds (lower, upper) of the share of counted answers into bounds of the leak probability: unchanged where
# the score is the truth, corrected where a judge errs (`lethe.statistics.judge_error`).
Carry = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def as_counted(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds unchanged: the score is the truth."""
    return lower, upper


INDEPENDENT = "independent answers to each question"


@dataclass(frozen=True)
class LeakAtK:
    """Leak@k with its band; tables of shape (questions, K), or (K,) if ``covers`` names one number per k.

    ``lower`` and ``upper`` hold for every k at once, each side by itself with probability 1 - ``alpha``; ``estimate``
    has no guarantee.
    """

    k: np.ndarray
    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    alpha: float
    questions: int
    covers: str
    method: str
    assumes: str


def leak_at_k(
    leaks: ArrayLike, n: ArrayLike, alpha: float, ks: Sequence[int] = QUERIES, missing: ArrayLike = 0
) -> LeakAtK:
    """Leak@k of each question by itself.

    Parameters
    ----------
    leaks : array of shape (questions,)
        Leaking answers per question; NaN where a question's scores are not all 0 or 1, which makes its row NaN.
    n : int or array of shape (questions,)
        Answers drawn per question, missing ones included; at least 1.
    alpha : float
        Error probability of each side, above 0 and up to 0.5.
    ks : sequence of int
        Numbers of answers, each at least 1.
    missing : int or array of shape (questions,)
        Answers without a score: they count as leaks in the upper bound and as clean in the lower bound; the estimate omits
        them.

    Returns
    -------
    LeakAtK
        Tables of shape (questions, K). The estimate is NaN where k exceeds the number of scored answers.

    Raises
    ------
    BadValue
        If alpha, k or a count lies outside its range.

    Notes
    -----
    Assumes that the answers to a question are independent draws. Band: Clopper and Pearson (1934), each side at alpha.
    Estimate: 1 - C(n - c, k) / C(n, k), as in pass@k (Chen et al. 2021, eq. 1).

    Examples
    --------
    >>> found = leak_at_k([0, 3], n=1024, alpha=0.01, ks=[1, 100, 10_000])
    >>> found.upper.round(4).tolist()
    [[0.0045, 0.3622, 1.0], [0.0098, 0.6256, 1.0]]
    >>> found.lower.round(4).tolist()
    [[0.0, 0.0, 0.0], [0.0004, 0.0417, 0.9859]]
    >>> found.estimate.round(4).tolist()
    [[0.0, 0.0, nan], [0.0029, 0.2655, nan]]
    """
    check_alpha(alpha)
    leaks, n, missing = check_counts(leaks, n, missing)
    k = check_queries(ks)
    lower, upper = rate_bounds(leaks, n, alpha, missing)
    return LeakAtK(
        k=k,
        estimate=unbiased(leaks, n - missing, k),
        lower=at_least_once(lower, k),
        upper=at_least_once(upper, k),
        alpha=alpha,
        questions=len(leaks),
        covers="each question by itself, all k at once, each side by itself",
        method="Clopper-Pearson on one answer, carried to k",
        assumes=INDEPENDENT,
    )


def worst_question(
    leaks: ArrayLike,
    n: ArrayLike,
    alpha: float,
    ks: Sequence[int] = QUERIES,
    missing: ArrayLike = 0,
    carry: Carry = as_counted,
) -> tuple[int, LeakAtK]:
    """Leak@k of the question that leaks most, and the index of the question with the largest upper bound.

    The upper side is the largest of the questions' own upper bounds at alpha. It needs no correction, because it is at
    least the upper bound of the question that truly leaks most. The lower side states that some question leaks at least
    that much. Each of the m questions could make that statement false, so the lower side is the largest of the lower bounds
    at alpha / m (Bonferroni). The estimate is the largest of the estimates and is therefore biased upwards.

    Parameters
    ----------
    leaks, n, alpha, ks, missing
        As in `leak_at_k`, without NaN.
    carry : callable
        Converts bounds (lower, upper) of the share of counted answers into bounds (lower, upper) of the leak probability.

    Returns
    -------
    int, LeakAtK
        Tables of shape (K,).

    Raises
    ------
    BadValue
        As in `leak_at_k`, and if there is no question or a question's scores are not all 0 or 1.

    Examples
    --------
    >>> place, found = worst_question([0, 3, 1], n=1024, alpha=0.01, ks=[1, 1000])
    >>> place, found.lower.round(4).tolist(), found.upper.round(4).tolist()
    (1, [0.0003, 0.2482], [0.0098, 0.9999])
    """
    leaks, n, missing, k = _of_all(leaks, n, missing, ks, alpha)
    m = len(leaks)
    upper = carry(*rate_bounds(leaks, n, alpha, missing))[1]
    lower = carry(*rate_bounds(leaks, n, alpha / m, missing))[0]
    return int(np.argmax(upper)), LeakAtK(
        k=k,
        estimate=np.fmax.reduce(unbiased(leaks, n - missing, k), axis=0),
        lower=at_least_once(lower.max(), k),
        upper=at_least_once(upper.max(), k),
        alpha=alpha,
        questions=m,
        covers="the question that leaks most, all k at once, each side by itself",
        method="the largest upper bound; the largest lower bound, Bonferroni over the questions",
        assumes=INDEPENDENT,
    )


def mean_over_questions(
    leaks: ArrayLike,
    n: ArrayLike,
    alpha: float,
    ks: Sequence[int] = QUERIES,
    missing: ArrayLike = 0,
    carry: Carry = as_counted,
) -> LeakAtK:
    """The mean of leak@k over the questions: the probability that k answers to a random question contain a leak.

    Each side is the tighter of two bounds, each at alpha / 2. (1) The average of the questions' own bounds at alpha / (2 m).
    (2) The pooled rate: 1 - (1 - p)^k is concave in p and at least p, so the mean lies between the average rate and leak@k
    of the average rate. Bound (2) needs equal n; for unequal n, bound (1) takes all of alpha.

    Parameters
    ----------
    leaks, n, alpha, ks, missing, carry
        As in `worst_question`.

    Returns
    -------
    LeakAtK
        Tables of shape (K,). The estimate is the mean of the estimates, NaN if one of them is NaN.

    Raises
    ------
    BadValue
        As in `worst_question`.

    Notes
    -----
    The pooled count is a sum of binomial counts with unequal probabilities. Clopper-Pearson stays valid at equal n and
    levels up to 1/4 (Hoeffding 1956).

    Examples
    --------
    >>> found = mean_over_questions([0, 0, 512, 0], n=1024, alpha=0.01, ks=[1, 1000])
    >>> found.lower.round(4).tolist(), found.upper.round(4).tolist()
    ([0.1131, 0.25], [0.1389, 0.9989])
    """
    leaks, n, missing, k = _of_all(leaks, n, missing, ks, alpha)
    m = len(leaks)
    pooled = m > 1 and bool((n == n[0]).all())
    level = alpha / 2 if pooled else alpha
    low, high = carry(*rate_bounds(leaks, n, level / m, missing))
    lower, upper = at_least_once(low, k).mean(axis=0), at_least_once(high, k).mean(axis=0)
    method = "the questions' own bounds together (Bonferroni)"
    if pooled:
        low, high = carry(*rate_bounds(leaks.sum(), n.sum(), level, missing.sum()))
        lower, upper = np.maximum(lower, low), np.minimum(upper, at_least_once(high, k))
        method += " or the pooled rate, whichever is narrower, half of the error probability each"
    return LeakAtK(
        k=k,
        estimate=unbiased(leaks, n - missing, k).mean(axis=0),
        lower=lower,
        upper=upper,
        alpha=alpha,
        questions=m,
        covers="the mean over the questions, all k at once, each side by itself",
        method=method,
        assumes=f"{INDEPENDENT} and between them",
    )


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


def _of_all(
    leaks: ArrayLike, n: ArrayLike, missing: ArrayLike, ks: Sequence[int], alpha: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    check_alpha(alpha)
    leaks, n, missing = check_counts(leaks, n, missing)
    if not leaks.size or np.isnan(leaks).any():
        raise BadValue("leaks", "NaN" if leaks.size else "none", "a count of at least one question")
    return leaks, n, missing, check_queries(ks)
