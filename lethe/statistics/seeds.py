"""A number over the seeds of a method, and its difference between two methods: the seed is the unit.

A seed gives one value, however many answers are behind it, so that more answers to the same models narrow nothing here. The
interval of a mean is Student's, that of a difference Welch's, or Student's over pairs of equal seeds where pairing is
declared. These intervals assume that the values of seeds are normally distributed. A difference is tested without that
assumption: by all permutations of the values between the methods, or by all signs of the paired differences.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from lethe.statistics.bound import Bound, Covers, both_ends
from lethe.statistics.checks import check, check_alpha

# Levels of other families are .01, but three seeds have two degrees of freedom: at .01 an interval is 2.3 times as wide.
ALPHA = 0.05
STUDENT = "Student's t over seeds"
WELCH = "Welch's t over seeds"
PAIRED = "Student's t over pairs of equal seeds"
NORMAL = "independent seeds with normally distributed values"
SIGNS = "all signs of the paired differences"
PERMUTATIONS = "all permutations of the seeds"
ENUMERATED = 200_000  # above so many permutations, as many are drawn at random
DRAWN = 0  # the seed of that draw
Statistic = Callable[..., np.ndarray]


@dataclass(frozen=True)
class MeanOfSeeds:
    """The mean over ``n`` seeds; standard deviation and interval are None where the seeds do not tell them."""

    n: int
    mean: float
    least: float
    greatest: float
    sd: float | None
    lower: Bound | None
    upper: Bound | None


@dataclass(frozen=True)
class DifferenceOfSeeds:
    """b's mean less a's, its interval (None where the seeds do not tell it), and the p-value of "no difference".

    ``least_p`` is the smallest p-value that so many seeds can have.
    """

    difference: float
    lower: Bound | None
    upper: Bound | None
    p_value: float
    least_p: float
    test: str


def mean_of_seeds(
    values: Sequence[float], alpha: float = ALPHA, within: tuple[float, float] | None = None
) -> MeanOfSeeds:
    """The mean of a number over seeds, with Student's interval at 1 - ``alpha``.

    A single seed has no interval. Neither have equal values: their standard deviation of 0 says nothing of other seeds.

    Parameters
    ----------
    values
        (n,), the number of each seed's model.
    alpha
        The probability with which the interval fails, half at each end.
    within
        The range in which the mean must lie, such as (0, 1) of a probability: the interval is cut there.
    """
    check_alpha(alpha)
    seeds = _checked(values)
    n = len(seeds)
    sd = None
    lower, upper = None, None
    if n > 1:
        sd = float(seeds.std(ddof=1))
        lower, upper = _interval(
            float(seeds.mean()), sd / math.sqrt(n), n - 1, alpha, STUDENT, n, within
        )
    return MeanOfSeeds(
        n=n,
        mean=float(seeds.mean()),
        least=float(seeds.min()),
        greatest=float(seeds.max()),
        sd=sd,
        lower=lower,
        upper=upper,
    )


def difference_of_seeds(
    a: Sequence[float], b: Sequence[float], paired: bool = False, alpha: float = ALPHA
) -> DifferenceOfSeeds:
    """The difference of two methods over their seeds, with its interval and a test.

    The test assumes that the values can be exchanged between the methods where the methods do not differ: those of all
    seeds, or the two of each pair. It is exact up to `ENUMERATED` permutations.

    Parameters
    ----------
    a, b
        (n,) and (m,), at least two each.
    paired
        Whether a[i] and b[i] share a seed and the caller declares them as pairs; then n must equal m.
    alpha
        The probability with which the interval fails, half at each end.
    """
    check_alpha(alpha)
    first, second = _checked(a), _checked(b)
    legal = "at least two seeds of each method"
    check(min(len(first), len(second)) > 1, "seeds", (len(first), len(second)), legal)
    if paired:
        check(len(first) == len(second), "seeds", (len(first), len(second)), "equally many pairs")
        return _of_pairs(second - first, alpha)
    return _of_two(first, second, alpha)


def least_p_value(n: int, m: int, paired: bool = False) -> float:
    """The smallest p-value of the test between ``n`` and ``m`` seeds.

    >>> least_p_value(3, 3), least_p_value(5, 5, paired=True)
    (0.1, 0.0625)
    """
    if paired:
        return min(1.0, 2 / 2**n)
    return min(1.0, 2 / math.comb(n + m, n))


def seeds_needed(tests: int, paired: bool = False, alpha: float = ALPHA) -> int:
    """How many seeds each method needs so that a difference can hold among so many tests at level ``alpha`` (Holm).

    >>> seeds_needed(1), seeds_needed(210), seeds_needed(1, paired=True)
    (4, 8, 6)
    """
    seeds = 2
    while least_p_value(seeds, seeds, paired) > alpha / max(1, tests):
        seeds += 1
    return seeds


def _of_pairs(differences: np.ndarray, alpha: float) -> DifferenceOfSeeds:
    n = len(differences)
    mean = float(differences.mean())
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    lower, upper = _interval(mean, error, n - 1, alpha, PAIRED, n)
    p_value = _p_value((differences,), _mean, "samples")
    return DifferenceOfSeeds(mean, lower, upper, p_value, least_p_value(n, n, paired=True), SIGNS)


def _of_two(a: np.ndarray, b: np.ndarray, alpha: float) -> DifferenceOfSeeds:
    mean = float(b.mean() - a.mean())
    errors = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)])
    lower, upper = None, None
    if errors.sum() > 0:
        freedom = errors.sum() ** 2 / (errors**2 / [len(a) - 1, len(b) - 1]).sum()
        error = math.sqrt(errors.sum())
        lower, upper = _interval(mean, error, float(freedom), alpha, WELCH, len(a) + len(b))
    p_value = _p_value((a, b), _difference_of_means, "independent")
    return DifferenceOfSeeds(
        mean, lower, upper, p_value, least_p_value(len(a), len(b)), PERMUTATIONS
    )


def _p_value(samples: tuple[np.ndarray, ...], statistic: Statistic, kind: str) -> float:
    """The two-sided p-value: twice the smaller share of permutations that are at least as extreme."""
    from scipy.stats import permutation_test  # the import takes 0.5 s

    tested = permutation_test(
        samples,
        statistic,
        permutation_type=kind,
        n_resamples=ENUMERATED,
        vectorized=True,
        rng=DRAWN,
    )
    return min(1.0, float(tested.pvalue))


def _mean(differences: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(differences.mean(axis=axis))


def _difference_of_means(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(b.mean(axis=axis) - a.mean(axis=axis))


def _interval(
    mean: float,
    error: float,
    freedom: float,
    alpha: float,
    method: str,
    n: int,
    within: tuple[float, float] | None = None,
) -> tuple[Bound | None, Bound | None]:
    """Both ends at half of alpha around a mean with this standard error; none where the error is 0."""
    if error == 0:
        return None, None
    half = float(-stdtrit(freedom, alpha / 2)) * error
    low, high = mean - half, mean + half
    if within is not None:
        low, high = max(low, within[0]), min(high, within[1])
    return both_ends(low, high, alpha / 2, Covers.SEEDS, NORMAL, method, n)


def _checked(values: Sequence[float]) -> np.ndarray:
    seeds = np.asarray(values, dtype=np.float64)
    shape = seeds.ndim == 1 and len(seeds) > 0
    check(
        shape and bool(np.isfinite(seeds).all()), "values", values, "a finite number for each seed"
    )
    return seeds
