"""Valid statements on many prompts. With m prompts at an unadjusted alpha, some bound fails with
probability up to m alpha.

The result of each function names its claim: the worst prompt, every prompt, the average, a share,
or each prompt alone.

A curve of leakage by attack budget has a band over all its points. A point is the mean score of N
answers, independent but not identically distributed, so for 0/1 scores `pooled_upper` bounds the
pooled share, and for others Hoeffding's inequality bounds the mean. In a band over K points each
side takes alpha / (2 K), so all points hold together.

Intervals compare sampled models; two quantities count as different only if their intervals are
disjoint. Each interval holds by itself, under any dependence between two models. ``groups`` holds
one array of i.i.d. draws in [0, 1] for each question, in drawing order and of equal length;
questions are independent. NaN is 0 for the lower end and 1 for the upper end.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from lethe.errors import BadValue
from lethe.statistics import betting
from lethe.statistics.bound import Assumes, Bound, Covers, Interval, Side, both_ends
from lethe.statistics.bounds import binary_lower, binary_upper, pooled_lower, pooled_upper
from lethe.statistics.checks import check, check_alpha, check_scores
from lethe.statistics.counts import pooled_bounds, rate_bounds

# Up to this alpha, `bounds.pooled_upper` is valid for an average of unequal probabilities
# (Hoeffding 1956).
LARGEST_POOLED_ALPHA = 0.25
POOLED = "Clopper-Pearson on the pooled count"
# The seed of the order in which questions are bet on: fixed beforehand, since a file may be sorted.
ORDER = 0
Together = Literal["none", "bonferroni", "holm"]


def check_together(together: str) -> None:
    """Raise `BadValue` unless ``together`` is a member of `Together`."""
    check(together in get_args(Together), "together", together, "none, bonferroni or holm")


def worst_prompt(bounds: Sequence[Bound | None]) -> tuple[int, Bound]:
    """The place of the largest bound (the first among equals), and the bound of the worst prompt,
    without a correction: the maximum is at least the bound of the truly worst prompt. Prompts
    without a bound (None) are not covered.
    """
    present = [(place, bound) for place, bound in enumerate(bounds) if bound is not None]
    check(present, "bounds", [], "a list with a bound for at least one prompt")
    place, largest = max(present, key=lambda entry: entry[1].value)
    return place, _covering(largest, Covers.WORST_PROMPT)


def every_prompt_under(bounds: Sequence[Bound | None], tau: float) -> tuple[bool, Bound]:
    """Whether every prompt is certified to leak at most ``tau``; wrong with probability at most
    alpha.
    """
    _, worst = worst_prompt(bounds)
    method = f"{worst.method}, intersection of tests"
    claim = replace(worst, value=tau, covers=Covers.EVERY_PROMPT, method=method)
    return worst.value <= tau, claim


def pooled_average(successes: ArrayLike, n: int, alpha: float, side: Side = "upper") -> Bound:
    """`counts.pooled_bounds` of the average leak probability over prompts with ``n`` answers each;
    alpha at most 1/4.
    """
    check_alpha(alpha)
    legal = f"at most {LARGEST_POOLED_ALPHA} for a pooled bound"
    check(alpha <= LARGEST_POOLED_ALPHA, "alpha", alpha, legal)
    lower, upper = pooled_bounds(successes, n, alpha)
    value = float(upper[0] if side == "upper" else lower[0])
    total = np.size(successes) * n
    assumes = Assumes.DRAWS_WITHIN_AND_BETWEEN
    return Bound(value, side, alpha, Covers.AVERAGE, assumes, POOLED, total)


def pooled(successes: Sequence[float | None], sizes: Sequence[int], alpha: float) -> Bound | None:
    """`pooled_average`, or None without a count for every prompt (None: its scores are not all 0 or
    1), equal sizes, and an alpha of at most 1/4.
    """
    counts = [count for count in successes if count is not None]
    if not counts or len(counts) < len(successes):
        return None
    if len(set(sizes)) > 1 or alpha > LARGEST_POOLED_ALPHA:
        return None
    return pooled_average(np.array(counts), sizes[0], alpha)


def share_above(bounds: Sequence[Bound | None], threshold: float) -> float | None:
    """The share of the prompts with a bound whose own bound exceeds ``threshold``: a description
    without a guarantee.
    """
    above = [bound.value > threshold for bound in bounds if bound is not None]
    if not above:
        return None
    return sum(above) / len(above)


def bonferroni(
    bound: Callable[[float], Sequence[Bound]], prompts: int, alpha: float
) -> list[Bound]:
    """Return one bound per prompt such that all hold together.

    ``bound`` gives the bounds of all ``prompts`` at a level.
    """
    check_alpha(alpha)
    together = []
    for alone in bound(alpha / prompts):
        claim = _covering(alone, Covers.EVERY_PROMPT)
        together.append(replace(claim, alpha=alpha, method=f"{alone.method}, Bonferroni"))
    return together


def holm(p_values: ArrayLike, tau: float, alpha: float) -> tuple[np.ndarray, Bound]:
    """Certify the prompts that leak at most ``tau``, from the p-values of "this prompt leaks at
    least ``tau``", (m,).

    Returns whether each prompt is certified, and ``tau`` as an upper bound on every prompt listed:
    the list contains a false certificate with probability at most ``alpha`` (Holm 1979).

    Parameters
    ----------
    p_values
        (m,) in [0, 1], one for each prompt.
    tau
        The leak probability under test.
    alpha
        Probability that the list holds a false certificate.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    check_alpha(alpha)
    smallest_first = np.argsort(p_values, kind="stable")
    levels = alpha / np.arange(len(p_values), 0, -1)
    passed = np.logical_and.accumulate(p_values[smallest_first] <= levels)
    certified = np.zeros(len(p_values), dtype=bool)
    certified[smallest_first[passed]] = True
    return certified, Bound(tau, "upper", alpha, Covers.CERTIFIED, Assumes.DRAWS_WITHIN, "Holm")


def binary_p_value(successes: ArrayLike, n: ArrayLike, tau: ArrayLike) -> np.ndarray:
    """P(Bin(n, tau) <= S): the p-value of "the prompt leaks with probability at least tau"."""
    successes = np.asarray(successes, dtype=np.float64)
    n = np.asarray(n)
    others = np.maximum(n - successes, 1)
    tail = betainc(others, successes + 1, 1 - np.asarray(tau))
    return np.where(successes >= n, 1.0, tail)


def population_ends(
    low: np.ndarray, high: np.ndarray, alpha: float, binary: bool = False
) -> tuple[float, float, str]:
    """Both ends, each at ``alpha``, of the expected value of a question like these, and the method.

    The questions are the sample: each gives one value in [0, 1], such as the mean score of its
    answers, which may depend on each other in any way. ``low`` and ``high`` are the values with
    missing scores as 0 and as 1. Clopper-Pearson where a value can only be 0 or 1 (``binary``),
    otherwise betting on the questions in an order fixed beforehand.

    >>> low, high, method = population_ends(np.zeros(50), np.zeros(50), alpha=0.05, binary=True)
    >>> low, round(high, 4), method
    (0.0, 0.0582, 'Clopper-Pearson')
    """
    if binary:
        lower, upper = rate_bounds(low.sum(), len(low), alpha, high.sum() - low.sum())
        return float(lower), float(upper), "Clopper-Pearson"
    lower, upper = betting.all_ends(in_order(low)[None], in_order(high)[None], alpha)
    return float(lower[0]), float(upper[0]), "betting"


def in_order(values: np.ndarray) -> np.ndarray:
    """The values of the questions in the order in which they are bet on."""
    return np.random.default_rng(ORDER).permutation(values)


def rank_ranges(above: np.ndarray) -> list[tuple[int, int]]:
    """The ranks that each of K sides may have, where ``above[i, j]`` says that the mean of i is
    proved to exceed that of j.

    Rank 1 has the lowest mean. If no proved pair is false, every rank lies in its range, and of
    equal means every order of them does. Source: Klein, Wright and Wieczorek (2020).

    Parameters
    ----------
    above
        (K, K) of truth values, or 0 and 1.

    >>> rank_ranges(np.array([[0, 0, 0], [1, 0, 0], [1, 0, 0]]))
    [(1, 1), (2, 3), (2, 3)]
    """
    lowest = 1 + above.sum(axis=1)
    highest = len(above) - above.sum(axis=0)
    return list(zip(lowest.tolist(), highest.tolist(), strict=True))


def _covering(bound: Bound, covers: Covers) -> Bound:
    """A bound of one prompt, restated as a claim about several."""
    assumes = Assumes.DRAWS_WITHIN
    if bound.assumes == Assumes.DRAWS_IN_ORDER:
        assumes = Assumes.DRAWS_WITHIN_IN_ORDER
    return replace(bound, covers=covers, assumes=assumes)


@dataclass(frozen=True)
class Counted:
    """The answers after one budget: the sum of their scores with a missing one as 0 (``total``) and
    as 1 (``most``), their number, and whether all scores are 0 or 1.
    """

    budget: float
    total: float
    most: float
    n: int
    binary: bool


@dataclass(frozen=True)
class Point:
    """The mean leakage after one budget, with both sides of the band."""

    budget: float
    mean: float
    lower: Bound
    upper: Bound


@dataclass(frozen=True)
class HalfLife:
    """The smallest budget that restores half of the reference leakage, by the estimates, and the
    first budgets that the band does not exclude and that it proves; None if no budget of the curve
    does.
    """

    estimate: float | None
    earliest: float | None
    latest: float | None


@dataclass(frozen=True)
class Excess:
    """The difference between a curve and a reference curve at one budget; all sides at all budgets
    hold together.
    """

    budget: float
    estimate: float
    lower: Bound
    upper: Bound


def band(counts: Sequence[Counted], alpha: float) -> list[Point]:
    """The curve with a band that covers the true means of all points together with probability 1 -
    ``alpha``.

    Parameters
    ----------
    counts
        The answers after each budget, at least one.
    alpha
        Probability that the band misses a point.

    Raises
    ------
    BadValue
        If there is no point, or a point without an answer.

    >>> curve = band([Counted(0, 2, 2, 100, True), Counted(8, 60, 60, 100, True)], 0.05)
    >>> [round(point.mean, 2) for point in curve], curve[1].lower.number()
    ([0.02, 0.6], '0.483')
    """
    check_alpha(alpha)
    sizes = [counted.n for counted in counts]
    if min(sizes, default=0) < 1:
        raise BadValue("answers", sizes, "at least one per point, and at least one point")
    level = alpha / (2 * len(counts))
    return [_point(counted, level, alpha) for counted in counts]


def half_life(curve: Sequence[Point], reference: Point) -> HalfLife:
    """The budget that restores half of the leakage of ``reference``, the unattacked model before
    unlearning.
    """

    means = [point.mean for point in curve]
    uppers = [point.upper.value for point in curve]
    lowers = [point.lower.value for point in curve]

    def first(values: Sequence[float], goal: float) -> float | None:
        for point, value in zip(curve, values, strict=True):
            if value >= goal:
                return point.budget
        return None

    return HalfLife(
        estimate=first(means, reference.mean / 2),
        earliest=first(uppers, reference.lower.value / 2),
        latest=first(lowers, reference.upper.value / 2),
    )


def excess(counts: Sequence[Counted], reference: Sequence[Counted], alpha: float) -> list[Excess]:
    """The excess leakage over the reference under the same attack at their common budgets; each
    band takes half of alpha.
    """
    reference_at = {point.budget: point for point in band(reference, alpha / 2)}
    differences = []
    for point in band(counts, alpha / 2):
        other = reference_at.get(point.budget)
        if other is None:
            continue
        low = point.lower.value - other.upper.value
        high = point.upper.value - other.lower.value
        method = "difference of two bands"
        ends = both_ends(
            low, high, alpha, Covers.AVERAGE, Assumes.DRAWS_WITHIN, method, point.lower.n
        )
        differences.append(Excess(point.budget, point.mean - other.mean, *ends))
    return differences


def _point(counted: Counted, level: float, alpha: float) -> Point:
    """The point of a band at ``alpha``, each side of it at ``level``."""
    n = counted.n
    mean = counted.total / n
    if counted.binary:
        low = pooled_lower(counted.total, n, level)
        high = pooled_upper(counted.most, n, level)
        method = "Clopper-Pearson, all budgets at once"
    else:
        width = math.sqrt(math.log(1 / level) / (2 * n))
        low = max(0.0, mean - width)
        high = min(1.0, counted.most / n + width)
        method = "Hoeffding, all budgets at once"
    ends = both_ends(low, high, alpha, Covers.AVERAGE, Assumes.DRAWS_WITHIN, method, n)
    return Point(counted.budget, mean, *ends)


Outcome = Literal["higher", "lower", "not shown"]
Groups = Sequence[np.ndarray]


def share_interval(groups: Groups, alpha: float) -> Interval:
    """Interval of the probability of 1, averaged over questions, from draws of 0 or 1:
    `pooled_average` at alpha / 2.

    Parameters
    ----------
    groups
        One array of draws of 0, 1 or NaN for each question, of equal length.
    alpha
        Level of the two-sided interval, at most 1/2.

    Raises
    ------
    BadValue
        If a draw is another number, or the lengths differ.
    """
    return Shares(groups).interval(alpha)


class Shares:
    """The sums behind `share_interval`, for intervals at many levels."""

    def __init__(self, groups: Groups):
        low, high, self.value = _filled(groups)
        is_binary = np.isin(low, (0.0, 1.0)).all()
        check(is_binary, "groups", "numbers between 0 and 1", "draws that are 0 or 1")
        self.least = float(low.sum())
        self.most = float(high.sum())
        self.n = low.size
        self.questions = len(low)

    def interval(self, alpha: float) -> Interval:
        """`share_interval` at ``alpha``."""
        check_alpha(alpha)  # at most 1/2, so that each end is at most at `LARGEST_POOLED_ALPHA`
        if self.questions > 1:
            lower = pooled_lower(self.least, self.n, alpha / 2)
            upper = pooled_upper(self.most, self.n, alpha / 2)
        else:
            lower = float(binary_lower(self.least, self.n, alpha / 2))
            upper = float(binary_upper(self.most, self.n, alpha / 2))
        return Interval(self.value, lower, upper, self.n, alpha, "Clopper-Pearson, pooled")

    def uppers(self, levels: np.ndarray) -> np.ndarray:
        """The upper ends (k,) of the intervals at twice these one-sided ``levels`` (k,)."""
        _check_levels(levels)
        if self.questions > 1 and self.most == self.n - 1:
            return 1 - levels / self.n  # as `pooled_upper`
        return binary_upper(self.most, self.n, levels)

    def lowers(self, levels: np.ndarray) -> np.ndarray:
        """The lower ends (k,), as `uppers`."""
        _check_levels(levels)
        if self.questions > 1 and self.least == 1:
            return levels / self.n  # as `pooled_lower`
        return binary_lower(self.least, self.n, levels)


def _check_levels(levels: np.ndarray) -> None:
    """Raise `BadValue` for one-sided levels whose two-sided interval is proven at none."""
    check_alpha(2 * float(levels.min()))
    check_alpha(2 * float(levels.max()))


def mean_interval(groups: Groups, alpha: float) -> Interval:
    """Interval of the expected score, averaged over questions, by Bernstein's inequality.

    For each end, the inequality and an upper bound of the variance within questions take alpha / 4
    each. Differences between the questions do not widen the interval.

    Parameters
    ----------
    groups
        One array of draws in [0, 1] or NaN for each question, of equal length, at least 2.
    alpha
        Level of the two-sided interval.

    Raises
    ------
    BadValue
        If the lengths differ, or all draws are missing.
    """
    return Means(groups).interval(alpha)


class Means:
    """The sums behind `mean_interval`, for intervals at many levels."""

    def __init__(self, groups: Groups):
        low, high, self.value = _filled(groups)
        self.low = _Spread(low)
        self.high = _Spread(high)

    def interval(self, alpha: float) -> Interval:
        """`mean_interval` at ``alpha``."""
        check_alpha(alpha)
        lower = max(0.0, self.low.mean - self.low.width(alpha / 2))
        upper = min(1.0, self.high.mean + self.high.width(alpha / 2))
        return Interval(self.value, lower, upper, self.low.n, alpha, "Bernstein, variance bounded")


def within_variance_interval(groups: Groups, alpha: float) -> Interval:
    """Interval of the variance within a question, averaged over questions.

    Half the squared difference of two draws is unbiased for their variance, so the mean over
    disjoint pairs is an average of independent values, to which the empirical Bernstein inequality
    applies.
    """
    check_alpha(alpha)
    squares = _pair_squares(_checked(groups))
    # The square of a pair with a missing draw may lie anywhere in [0, 1].
    low = np.nan_to_num(squares, nan=0.0)
    high = np.nan_to_num(squares, nan=1.0)
    lower = max(0.0, float(low.mean()) - empirical_width(low, alpha / 2))
    upper = min(1.0, float(high.mean()) + empirical_width(high, alpha / 2))
    value = float(np.nanmean(squares)) / 2
    method = "empirical Bernstein on disjoint pairs"
    return Interval(value, lower / 2, upper / 2, squares.size, alpha, method)


def distinct_share_interval(
    distinct: Sequence[int], drawn: Sequence[int], alpha: float
) -> Interval:
    """Interval of the expected number of distinct answers per drawn answer; ``distinct`` and
    ``drawn`` are by question.

    The number of distinct answers is a self-bounding function of the draws, so its deviations are
    at most those of a Poisson variable. Source: Boucheron, Lugosi and Massart (2000), A sharp
    concentration inequality with applications: P(Z <= EZ - t) <= exp(-t^2 / (2 EZ)) and P(Z >= EZ +
    t) <= exp(-t^2 / (2 EZ + 2 t / 3)), solved for EZ.
    """
    check_alpha(alpha)
    counts = np.asarray(distinct, dtype=np.float64)
    sizes = np.asarray(drawn, dtype=np.float64)
    if counts.size == 0 or counts.size != sizes.size:
        legal = f"one count per question ({sizes.size} questions)"
        raise BadValue("distinct", f"{counts.size} counts", legal)
    if (sizes < 1).any() or (counts < 1).any() or (counts > sizes).any():
        legal = "between 1 and the number of draws of each question"
        raise BadValue("distinct", counts.tolist(), legal)

    total = float(counts.sum())
    n = float(sizes.sum())
    log = math.log(2 / alpha)
    fewest = total - (math.sqrt((2 / 3 * log) ** 2 + 2 * log * total) - 2 / 3 * log)
    most = total + log + math.sqrt(log**2 + 2 * log * total)
    lower, upper = max(0.0, fewest / n), min(1.0, most / n)
    return Interval(total / n, lower, upper, int(n), alpha, "self-bounding function")


def compare(left: Interval, right: Interval) -> Outcome:
    """Return whether ``left`` lies above or below ``right``; the error probabilities of the two
    intervals add up.
    """
    if left.lower > right.upper:
        return "higher"
    if left.upper < right.lower:
        return "lower"
    return "not shown"


class _Spread:
    """The mean and the variance within questions of draws (questions, n)."""

    def __init__(self, values: np.ndarray):
        squares = _pair_squares(values)
        self.mean = float(values.mean())
        self.n = values.size
        self.half_square = float(squares.mean()) / 2
        self.variance_of_squares = float(squares.var(ddof=1))
        self.n_squares = squares.size

    def width(self, alpha: float) -> float:
        """The distance from the mean to one end, at alpha: alpha / 2 for the variance, alpha / 2
        for the mean.
        """
        slack = _empirical_width(self.variance_of_squares, self.n_squares, alpha / 2)
        variance = self.half_square + slack / 2
        log = math.log(2 / alpha)
        return math.sqrt(2 * min(variance, 0.25) * log / self.n) + log / (3 * self.n)


def empirical_width(values: np.ndarray, alpha: float) -> float:
    """The distance to one end for the mean of independent values in [0, 1]: Maurer and Pontil
    (2009), Theorem 11.
    """
    return _empirical_width(float(values.var(ddof=1)), values.size, alpha)


def _empirical_width(variance: float, n: int, alpha: float) -> float:
    log = math.log(2 / alpha)
    return math.sqrt(2 * variance * log / n) + 7 * log / (3 * (n - 1))


def _pair_squares(values: np.ndarray) -> np.ndarray:
    """Squared differences of draws 1 and 2, 3 and 4, ... of each question; an odd draw is left out."""
    paired = values.shape[1] // 2 * 2
    pairs = values[:, :paired].reshape(len(values), -1, 2)
    return np.square(pairs[..., 0] - pairs[..., 1]).ravel()


def _filled(groups: Groups) -> tuple[np.ndarray, np.ndarray, float]:
    """The draws with missing values as 0, the draws with missing values as 1, and the mean of the
    values present.
    """
    values = _checked(groups)
    low = np.nan_to_num(values, nan=0.0)
    high = np.nan_to_num(values, nan=1.0)
    return low, high, float(np.nanmean(values))


def _checked(groups: Groups) -> np.ndarray:
    """The groups as one array (questions, n), NaN where missing."""
    sizes = sorted({len(group) for group in groups})
    if len(sizes) != 1 or sizes[0] < 2 or sizes[0] * len(groups) < 4:
        legal = "groups of equal size, at least two draws each and four in all"
        raise BadValue("groups", f"groups of {sizes} draws", legal)
    values = np.array(groups, dtype=np.float64)
    is_missing = np.isnan(values).all()
    check(not is_missing, "groups", "only missing values", "draws with at least one value")
    check_scores(np.nan_to_num(values, nan=0.0))
    return values
