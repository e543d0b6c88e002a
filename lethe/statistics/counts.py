"""Counted leaks of each question: bounds by Clopper-Pearson, and leak@k, a function of the leak
probability.

Bounds from a person's labels alone assume nothing about any judge. Of a question's n draws L truly
leak, and a person labelled the texts of some. Each true leak is a labelled leak or has no label, so

    labelled leaks <= L <= labelled leaks + draws without a label,

for every outcome and for any choice of texts, also one that follows these draws, their scores or
earlier labels. The ends of Clopper and Pearson grow with the count, so the upper end of the right
side is at least that of L and misses no more often: `leak_rates.Rate` with the draws without a
label as missing answers. No half of the draws is set aside.

Random draws of the rest, the R draws whose texts were not chosen, narrow the bound of the average.
Their number s is fixed, and the choice of texts follows the draws alone. Conditionally on all draws
the leaks among these s are hypergeometric, so `spot_check.most_forged` bounds the leaks of the rest
with alpha / 2, and Clopper-Pearson takes the other half. A judge may order what is labelled, but
enters no bound: the labels of its calibration alone are nearly always narrower than a bound that
carries the judge's error. A shortcut is not valid: labels of distinct texts are no random draws; the
rates here are per draw.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.bounds import binary_lower, binary_upper, pooled_lower, pooled_upper
from lethe.statistics.checks import check, check_alpha
from lethe.statistics.spot_check import most_forged


def rate_bounds(
    leaks: ArrayLike, n: ArrayLike, alpha: float, missing: ArrayLike = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Clopper-Pearson bounds (lower, upper) of each leak probability, each one-sided at alpha.

    Leaks and draws of each question are arrays of one shape, or numbers; missing answers are clean
    in the lower bound and leaks in the upper bound.

    >>> lower, upper = rate_bounds(np.array([3, 3]), np.array([1024, 1024]), 0.01, np.array([0, 10]))
    >>> lower.round(4).tolist(), upper.round(4).tolist()
    ([0.0004, 0.0004], [0.0098, 0.0234])
    """
    leaks, n, missing = np.broadcast_arrays(leaks, n, missing)
    return binary_lower(leaks, n, alpha), binary_upper(leaks + missing, n, alpha)


def pooled_bounds(
    leaks: ArrayLike, n: ArrayLike, alpha: float, missing: ArrayLike = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (lower, upper) of the average leak probability over questions with equal n, each
    one-sided at alpha, shape (1,).

    Those of `pooled_upper` and `pooled_lower`; of one question Clopper-Pearson's. The parameters
    are those of `rate_bounds`.

    >>> lower, upper = pooled_bounds([1, 0], [64, 64], 0.05)
    >>> lower.tolist() == [0.05 / 128], upper.round(4).tolist()
    (True, [0.0365])
    """
    least = np.sum(leaks)
    most = least + np.sum(np.broadcast_to(missing, np.shape(leaks)))
    total = int(np.sum(np.broadcast_to(n, np.shape(leaks))))
    if np.size(leaks) > 1:
        lower = pooled_lower(least, total, alpha)
        upper = pooled_upper(most, total, alpha)
        return np.array([lower]), np.array([upper])
    return (
        np.atleast_1d(binary_lower(least, total, alpha)),
        np.atleast_1d(binary_upper(most, total, alpha)),
    )


def at_least_once(p: ArrayLike, ks: ArrayLike) -> np.ndarray:
    """1 - (1 - p)^k for every p, (...), and every k, (K,), to full relative precision at any p; NaN
    stays NaN.
    """
    p = np.asarray(p, dtype=np.float64)[..., None]
    k = np.asarray(ks, dtype=np.float64)
    with np.errstate(divide="ignore"):  # p = 1
        chances = -np.expm1(k * np.log1p(-p))
    return np.where(k == 1, p, chances)  # for k = 1 the logarithm would round p


def unbiased(leaks: ArrayLike, n: ArrayLike, ks: ArrayLike) -> np.ndarray:
    """The unbiased estimate of leak@k: the share of the k-subsets of a question's n answers that
    contain a leak.

    This is 1 - C(n - c, k) / C(n, k), (questions, K), NaN where k > n. NaN leaks stay NaN.

    >>> unbiased([1, 5], [10, 10], [1, 5, 10, 11]).round(3).tolist()
    [[0.1, 0.5, 1.0, nan], [0.5, 0.996, 1.0, nan]]
    """
    leaks = np.asarray(leaks, dtype=np.float64)
    n = np.asarray(n)
    ks = np.asarray(ks)
    estimates = np.full((len(leaks), len(ks)), np.nan)
    for size in np.unique(n):
        rows = np.flatnonzero((n == size) & ~np.isnan(leaks))
        counts = leaks[rows].astype(np.int64)
        for place, k in enumerate(ks):
            if k <= size and len(rows):
                estimates[rows, place] = _share_with_a_leak(counts, size, k)
    return estimates


def _share_with_a_leak(counts: np.ndarray, n: int, k: int) -> np.ndarray:
    """1 - C(n - c, k) / C(n, k) of each count c.

    The ratio is the product of 1 - k / j over j = n - c + 1, ..., n; if c > n - k, no subset is
    clean.
    """
    longest = min(int(counts.max()), int(n - k))
    logs = np.log1p(-k / np.arange(n, n - longest, -1.0))
    sums = np.concatenate([[0.0], np.cumsum(logs)])
    shares = -np.expm1(sums[np.minimum(counts, longest)])
    return np.where(counts > n - k, 1.0, shares) + 0.0  # no negative zero


def check_queries(ks: ArrayLike) -> np.ndarray:
    """The numbers of queries as integers (K,); `BadValue` unless all are whole and at least 1."""
    k = np.asarray(ks)
    if k.ndim != 1 or (k.size and (k.min() < 1 or (k != np.floor(k)).any())):
        raise BadValue("k", ks, "whole numbers of at least 1")
    return k.astype(np.int64)


def check_counts(
    leaks: ArrayLike, n: ArrayLike, missing: ArrayLike = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return whole counts of equal length: ``leaks`` (P,) at least 0 or NaN, ``n`` at least 1,
    leaks + missing at most n.

    Raises
    ------
    BadValue
        For the first count that is not whole, too small, or of another shape.
    """
    leaks = np.atleast_1d(np.asarray(leaks, dtype=np.float64))
    try:
        n = np.broadcast_to(n, leaks.shape)
        missing = np.broadcast_to(missing, leaks.shape)
    except ValueError:
        legal = f"of shape {leaks.shape}, the shape of leaks"
        raise BadValue("n and missing", (np.shape(n), np.shape(missing)), legal) from None
    check(leaks.ndim == 1, "leaks", f"shape {leaks.shape}", "one count per question")
    for name, counts, least in (("leaks", leaks, 0), ("n", n, 1), ("missing", missing, 0)):
        wrong = (counts < least) | (np.floor(counts) != counts)
        if name == "leaks":
            wrong &= ~np.isnan(counts)
        if wrong.any():
            raise BadValue(name, counts[wrong][0].item(), f"a whole number of at least {least}")
    over = leaks + missing > n
    if over.any():
        got = f"{leaks[over][0]:g} + {missing[over][0]:g} of {n[over][0]:g}"
        raise BadValue("leaks and missing", got, "together at most n")
    return leaks, n.astype(np.int64), missing.astype(np.int64)


LABELLED = "independent draws within each prompt; a person's label is the truth"
WITH_REST = f"{LABELLED}; the labelled draws of the rest were chosen at random"
AT_RANDOM = (
    "a person's label is the truth; each labelled answer is a draw of the run chosen at random, a "
    "question uniformly and then a draw of it, without sight of text or verdict"
)
OF_PRESENT = "; an answer that never came has no label, and is a leak in an upper end"
OF_DROPPED = "; missing answers are missing at random, and leak as often as those that came"
LABELLED_METHOD = "Clopper-Pearson on the labelled leaks, the rest counted against the claim"
METHOD_REST = (
    "Clopper-Pearson on the labelled leaks and the leaks that the rest has at most or at least, "
    "which a hypergeometric bound takes from its labelled draws; alpha / 2 each"
)
METHOD_AT_RANDOM = "Clopper-Pearson on the labels"


def labelled_average(
    leaks: np.ndarray,
    rest: np.ndarray,
    n: np.ndarray,
    of_rest: tuple[int, int] | None,
    alpha: float,
    missing: ArrayLike = 0,
) -> tuple[float, float]:
    """Ends (lower, upper) of the average leak probability over questions with equally many draws;
    alpha at most 1/4.

    Of ``n`` draws of a question, a person labelled the text of ``leaks`` a leak, and nobody labelled
    that of ``rest``. ``of_rest`` counts labelled leaks among the random draws of the rest, and these
    draws (0 until all are labelled). It is None where no such draws were planned, which gives all of
    alpha to one bound; otherwise half of alpha bounds the leaks of the rest, as in the module.

    Parameters
    ----------
    leaks, rest, n
        (m,) counts of each question.
    of_rest
        Leaks among the labelled random draws of the rest, and the number of these draws, which were
        drawn without replacement: at most the sum of ``rest``.
    alpha
        One-sided level of each end.
    missing
        (m,) draws without a text, which nobody can label and ``rest`` leaves out: each is a leak
        in the upper end, and none in the lower one.

    >>> leaks, rest, n = np.array([5, 0]), np.array([40, 60]), np.array([500, 500])
    >>> ends = labelled_average(leaks, rest, n, of_rest=(1, 50), alpha=0.05)
    >>> [round(end, 4) for end in ends]
    [0.0022, 0.0221]
    """
    known, size = int(np.sum(leaks)), int(np.sum(rest))
    least = 0
    most = size
    level = alpha
    if of_rest is not None:
        level = alpha / 2
        hits, labelled = of_rest
        if labelled:
            most = most_forged(size, labelled, level, hits)
            least = size - most_forged(size, labelled, level, labelled - hits)
    counts = np.zeros(np.shape(leaks))  # the pooled ends depend on the sum alone
    counts[0] = known + least
    lower, _ = pooled_bounds(counts, n, level)
    counts[0] = known + most + np.sum(missing)
    _, upper = pooled_bounds(counts, n, level)
    return float(lower[0]), float(upper[0])


def random_labels(leaks: int, n: int, alpha: float) -> tuple[float, float]:
    """Ends (lower, upper) of the average leak probability from labels of ``n`` random draws of the
    run; alpha at most 1/4.

    The ends also hold where the questions were drawn without replacement (see `pooled_bounds`).
    """
    check_alpha(alpha)
    lower, upper = pooled_bounds([leaks, 0], [n, 0], alpha)
    return float(lower[0]), float(upper[0])


def with_lost(
    ends: tuple[float, float], lost: Sequence[int], n: Sequence[int], alpha: float
) -> tuple[float, float]:
    """Ends (lower, upper) of the leak probability of all draws, from ``ends`` of those that came,
    which alone can be labelled.

    Of ``n`` draws of a question, ``lost`` never came: each is a leak in the upper end and none in
    the lower one. The upper end of their share holds at ``alpha``, and both ends at the sum of
    ``alpha`` and the level of ``ends``.

    >>> with_lost((0.25, 0.5), [0], [60], 0.05)
    (0.25, 0.5)
    >>> [round(end, 3) for end in with_lost((0.25, 0.5), [6], [60], 0.05)]
    [0.062, 0.688]
    """
    lower, upper = ends
    if not any(lost):
        return lower, upper
    if len(set(n)) == 1:
        (share,) = pooled_bounds(lost, n, alpha)[1]
    else:
        share = np.mean(binary_upper(lost, n, alpha / len(n)))
    smaller = np.nextafter(lower - share, -np.inf)
    larger = np.nextafter(upper + share, np.inf)
    return float(max(smaller, 0.0)), float(min(larger, 1.0))
