"""Two samples or two quantities: a threshold fitted once, the AUC with an interval,
Kolmogorov-Smirnov, Kendall's trend, and Fisher's combination of independent p-values.
"""

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, rel_entr

from lethe.errors import BadValue
from lethe.statistics.bound import Covers, Interval
from lethe.statistics.checks import check, check_share
from lethe.statistics.search import halved


def fit_threshold(members: np.ndarray, nonmembers: np.ndarray) -> float:
    """The observed score v that maximises (P[member >= v] + P[nonmember < v]) / 2; of several the
    first, members first.

    The points must be in neither the forget set nor the test set of the game.

    Parameters
    ----------
    members, nonmembers
        (m,) and (n,) scores, higher for members.

    Raises
    ------
    BadValue
        If a side is empty or a score is NaN.
    """
    members = np.asarray(members, float)
    nonmembers = np.asarray(nonmembers, float)
    if not len(members) or not len(nonmembers):
        sizes = f"{len(members)} members, {len(nonmembers)} nonmembers"
        raise BadValue("scores", sizes, "at least one of each")
    observed = np.concatenate([members, nonmembers])
    check(not np.isnan(observed).any(), "scores", "NaN", "numbers")
    accepted = len(members) - np.searchsorted(np.sort(members), observed)
    rejected = np.searchsorted(np.sort(nonmembers), observed)
    # Whole numbers make equal accuracies tie exactly, so that the first one is chosen.
    correct = accepted * len(nonmembers) + rejected * len(members)
    return float(observed[np.argmax(correct)])


def auc(members: np.ndarray, nonmembers: np.ndarray) -> float:
    """P[member > nonmember] + P[equal] / 2, the area under the ROC curve (Mann-Whitney), in [0, 1]."""
    members = np.asarray(members, float)
    nonmembers = np.sort(np.asarray(nonmembers, float))
    below = np.searchsorted(nonmembers, members, side="left")
    not_above = np.searchsorted(nonmembers, members, side="right")
    pairs = len(members) * len(nonmembers)
    return float((below + not_above).sum() / 2 / pairs)


@dataclass(frozen=True)
class KsTest:
    """Two-sided two-sample Kolmogorov-Smirnov test: ``statistic`` and ``p_value`` in [0, 1]."""

    statistic: float
    p_value: float
    n_first: int
    n_second: int
    method: str = "exact"
    side: str = "two-sided"
    assumes: str = "independent values, the same distribution within a sample; with ties the p-value is too large"


def ks_test(first: np.ndarray, second: np.ndarray) -> KsTest:
    """Test that two samples come from one distribution; the p-value is exact (Hodges 1958), and
    with ties too large.

    SciPy gives the asymptotic value where the exact one is out of reach of its arithmetic;
    ``method`` then says so.

    Parameters
    ----------
    first, second
        (m,) and (n,) values; no NaN.
    """
    from scipy.stats import ks_2samp  # the import takes 0.5 s

    first = _sample("first", first)
    second = _sample("second", second)
    with warnings.catch_warnings(record=True, action="always", category=RuntimeWarning) as fallback:
        test = ks_2samp(first, second, method="exact")
    method = "asymptotic" if fallback else "exact"
    return KsTest(float(test.statistic), float(test.pvalue), len(first), len(second), method)


def auc_interval(members: np.ndarray, nonmembers: np.ndarray, alpha: float = 0.05) -> Interval:
    """The AUC of membership scores, higher for members, with a two-sided interval; alpha strictly
    between 0 and 1.

    Assumes independent values in each sample. The AUC is an average of averages of min(m, n)
    independent terms in [0, 1] (Hoeffding 1963, section 5b), so min(m, n) kl(AUC-hat, AUC) <= ln(2
    / alpha), including with ties.

    Parameters
    ----------
    members, nonmembers
        (m,) and (n,) scores, higher for members.
    alpha
        Level of the two-sided interval.

    Raises
    ------
    BadValue
        If a side is empty or holds NaN.

    >>> interval = auc_interval(np.arange(20.0, 70.0), np.arange(50.0))
    >>> round(interval.value, 2), round(interval.lower, 3), round(interval.upper, 3)
    (0.82, 0.646, 0.934)
    """
    members = _sample("members", members)
    nonmembers = _sample("nonmembers", nonmembers)
    check_share("alpha", alpha)
    value = auc(members, nonmembers)
    n = min(len(members), len(nonmembers))
    level = math.log(2 / alpha) / n
    low = 1 - kl_upper(1 - value, level)
    high = kl_upper(value, level)
    assumes = "independent values in each sample"
    return Interval(value, low, high, n, alpha, "kl", assumes, Covers.HELD_OUT)


def kl_upper(value: float, level: float) -> float:
    """The largest q >= value with kl(value, q) <= level, by bisection, rounded up."""

    def is_too_far(q: float) -> bool:
        divergence = rel_entr(value, q) + rel_entr(1 - value, 1 - q)
        return bool(divergence > level)

    _, high = halved(is_too_far, value, 1.0, width=1e-12)
    return high


def _sample(name: str, values: np.ndarray) -> np.ndarray:
    """The values, sorted; raises `BadValue` for no values or NaN."""
    values = np.sort(np.asarray(values, dtype=np.float64).ravel())
    check(len(values), name, "no values", "at least one value")
    check(not np.isnan(values[-1]), name, "NaN", "numbers")
    return values


PERMUTATIONS = 9_999


@dataclass(frozen=True)
class Trend:
    """Kendall's tau-b of two quantities, of the pairs within a group alone (None where all values
    of one are equal), and one-sided p-values of the permutation test: the second quantity falls, or
    rises, with the first.
    """

    tau: float | None
    p_falls: float
    p_rises: float
    points: int


def trend(
    x: Sequence[float],
    y: Sequence[float],
    groups: Sequence[Hashable] | None = None,
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Trend:
    """Test whether ``y`` falls or rises with ``x``; points are compared and permuted within their
    group alone.

    The p-values are valid where the values of ``y`` in a group are exchangeable, ties included
    (Kendall, Biometrika 30, 1938; Phipson and Smyth, "Permutation P-values Should Never Be Zero",
    2010).

    Parameters
    ----------
    x, y
        (n,) finite numbers.
    groups
        (n,) the group of each point; one group if None.
    permutations
        Random permutations; the smallest p-value is 1 / (1 + permutations).
    seed
        Of the permutations.

    Raises
    ------
    BadValue
        If the lengths differ or a number is not finite.

    >>> result = trend([0, 1, 2, 3, 4, 5], [9.0, 7.0, 5.0, 4.0, 2.0, 1.0])
    >>> result.tau, result.p_falls < 0.01, result.p_rises
    (-1.0, True, 1.0)
    """
    first = np.asarray(x, float)
    second = np.asarray(y, float)
    members = [0] * len(first) if groups is None else list(groups)
    if first.shape != second.shape or first.ndim != 1 or len(members) != len(first):
        legal = f"as many as x and groups ({len(first)} and {len(members)})"
        raise BadValue("y", f"{len(second)} values", legal)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise BadValue("x and y", "a value that is not finite", "numbers")
    rng = np.random.default_rng(seed)
    total = pairs_x = pairs_y = 0.0
    permuted = np.zeros(permutations)
    for group in dict.fromkeys(members):
        in_group = np.array([member == group for member in members])
        signs_x = _signs(first[in_group])
        signs_y = _signs(second[in_group])
        total += float((signs_x * signs_y).sum()) / 2
        pairs_x += float(abs(signs_x).sum()) / 2
        pairs_y += float(abs(signs_y).sum()) / 2
        for number in range(permutations):
            order = rng.permutation(len(signs_y))
            shuffled = signs_y[np.ix_(order, order)]
            permuted[number] += float((signs_x * shuffled).sum()) / 2

    tau = None
    if pairs_x and pairs_y:
        tau = total / float(np.sqrt(pairs_x * pairs_y))
    p_falls = float(1 + (permuted <= total).sum()) / (1 + permutations)
    p_rises = float(1 + (permuted >= total).sum()) / (1 + permutations)
    return Trend(tau, p_falls, p_rises, len(first))


def _signs(values: np.ndarray) -> np.ndarray:
    """(n, n) the signs of the differences of all pairs."""
    return np.sign(values[:, None] - values[None, :])


CELLS = 32  # of levels and of means, over which a product of p-values is bounded
ROUNDS, PRECISION = 4, 1e-5  # of the division of these cells
LARGEST_LEVEL = 0.5


def product_threshold(level: float) -> float:
    """The t with t (1 - ln t) = ``level``: independent p-values have a product of at most t with
    probability ``level``.
    """

    return float(np.exp(-chdtri(4, level) / 2))


def combined_low(
    level: float,
    upper: Callable[[np.ndarray], np.ndarray],
    lower: Callable[[np.ndarray], np.ndarray],
    largest: float = LARGEST_LEVEL,
    rounds: int = ROUNDS,
) -> float:
    """The least difference of all pairs of parameters that Fisher's combination does not refute at
    ``level``.

    ``upper`` and ``lower`` bound the first and the second parameter at an array of levels up to
    ``largest``, from independent evidence; a larger p-value counts as 1. Where the first p-value
    lies between two levels of a grid, the first parameter is at most the upper bound at the smaller
    level, and the second p-value exceeds the threshold by the larger level. Cells that could hold
    the least value are divided ``rounds`` times.

    Parameters
    ----------
    level
        One-sided level of the combination, in (0, 1).
    upper, lower
        Bounds (k,) of the first and second parameter at levels (k,).
    largest
        The largest level at which both bounds are proven.
    rounds
        How often open cells are divided.
    """
    threshold = product_threshold(level)

    def joined(firsts: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        return lower(np.minimum(seconds, largest)) - upper(np.minimum(firsts, largest))

    start = 1.0
    end = 0.0
    low = -math.inf
    for _ in range(rounds):
        grid = threshold ** np.linspace(start, end, CELLS + 1)
        rest = np.where(grid <= largest, threshold / grid, threshold)
        cells = joined(grid[:-1], rest[1:])
        points = joined(grid, rest)
        low = max(low, float(cells.min()))
        open_cells = np.flatnonzero(cells <= points.min())
        if not len(open_cells) or points.min() - low <= PRECISION:
            break
        logs = np.log(grid) / math.log(threshold)
        start, end = float(logs[open_cells[0]]), float(logs[open_cells[-1] + 1])
    return low


def largest_combination(
    falling: Callable[[np.ndarray], np.ndarray], growing: Callable[[np.ndarray], np.ndarray]
) -> float:
    """Fisher's combination at the common parameter where the product of a falling and a growing
    p-value is largest.

    Rounded up: in each cell of a grid, the product is at most that of its ends. The cells that
    could hold the maximum are divided again.
    """
    low = 0.0
    end = 1.0
    largest = 1.0
    for _ in range(2 * ROUNDS):
        grid = np.linspace(low, end, CELLS + 1)
        first = falling(grid)
        second = growing(grid)
        cells = first[:-1] * second[1:]
        points = first * second
        largest = min(largest, float(cells.max()))
        open_cells = np.flatnonzero(cells >= points.max())
        low, end = grid[open_cells[0]], grid[open_cells[-1] + 1]
        if largest <= 1.001 * points.max():
            break
    if largest <= 0:
        return 0.0
    return largest * (1 - math.log(largest))
