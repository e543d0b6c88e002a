"""Bounds of a mean and of a standard deviation by betting (Waudby-Smith and Ramdas 2024, section
4).

A bet against the claim "the mean is at least m" can refute the claim. With stakes lambda_t fixed
before X_t is seen, the capital prod (1 + lambda_t (m - X_t)) is a non-negative supermartingale if
the mean is at least m. By Ville's inequality it ever reaches 1 / alpha with probability at most
alpha. The bound is the smallest refuted m. The bound depends on the order of the draws, which must
be the order of sampling.

The stake is the same within a block of draws, and follows from what is still missing and what is
still to come (Voráček and Orabona 2025): s = sqrt(2 (G - c) / (draws left * variance)), where G =
ln(1 / alpha) and c is the log capital at the start of the block. With third central moment k, a
stake of s gains less than the variance alone says if k > 0, by the next term of ln(1 + u), so
lambda = s / (1 + 2/3 s k / variance), with a divisor within `DIVISORS`, and capped.

The claims refuted in this way are all m from a point on. For let F(c) be the log capital within a
block that starts with c below G. The elasticity of lambda in G - c is at most 1, so with u_t =
lambda (m - X_t) and u / (1 + u) <= ln(1 + u), the derivative of F is at least 1 - (F - c) / (G -
c), hence not negative while F <= G: F cannot fall below G once it is there. Every factor grows with
m, so by induction a larger m has more capital at the end of each block, until it is refuted.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.statistics.checks import check_alpha, check_scores

# The largest stake, as a share of the largest that cannot lose all capital; fixed beforehand.
CAP = 0.9
PRIOR = 0.5  # each moment of one prior observation, a fair coin
DIVISORS = (0.5, 1.5)  # least and largest, by which skewness changes a stake
# Log capital: a bet that has almost reached its goal goes on with stakes of this size.
LEAST_MISSING = 0.3
# Blocks of equally many draws, none longer than LONGEST: no product of its factors underflows.
BLOCKS = 24
LONGEST = 128
TOLERANCE = 1e-9
TOGETHER = (
    2**20
)  # values that one search takes; with fewer, calls of NumPy take more time than the numbers


def mean_upper(scores: np.ndarray, alpha: float, recomputed: bool = True) -> np.ndarray:
    """(P,) upper bound of each row's mean, for that row at alpha, from independent draws in
    sampling order, (P, n).

    The stakes follow the capital if ``recomputed``; otherwise the bound inverts `p_value`.

    Parameters
    ----------
    scores
        (P, n) in [0, 1], in sampling order.
    alpha
        One-sided level of each row, at most 1/2.

    Raises
    ------
    BadValue
        If a score is missing or outside [0, 1].

    >>> mean_upper(np.zeros((1, 100)), alpha=0.05).round(4).tolist()
    [0.0343]
    """
    scores = check_scores(scores)
    check_alpha(alpha)
    return _smallest_refuted(scores, alpha, recomputed)


def mean_lower(scores: np.ndarray, alpha: float, recomputed: bool = True) -> np.ndarray:
    """(P,) lower bound of each row's mean: 1 minus the upper bound of the mean of 1 - X.

    Parameters and errors are those of `mean_upper`.
    """
    return 1.0 - mean_upper(1.0 - check_scores(scores), alpha, recomputed)


@dataclass(frozen=True, eq=False)
class BettingEnds:
    """Ends of rows, (P,) each: of the mean from both sides, and ``squares``, the upper ends of the variance."""

    mean_lower: np.ndarray
    mean_upper: np.ndarray
    squares: np.ndarray

    def of(self, places: Sequence[int]) -> "BettingEnds":
        """The ends of the rows at ``places``."""
        return BettingEnds(self.mean_lower[places], self.mean_upper[places], self.squares[places])


def all_ends(
    low: np.ndarray, high: np.ndarray, alpha: float, *others: np.ndarray
) -> list[np.ndarray]:
    """`mean_lower` of the rows of ``low``, `mean_upper` of those of ``high`` and of each other
    table, in one search, which takes nearly as long for one row as for a hundred.

    Parameters
    ----------
    low, high
        (P, n) in [0, 1]; missing scores as 0, and as 1.
    alpha
        One-sided level of each row and end.
    others
        Tables (P, n) whose means are bounded from above too.

    Returns
    -------
    list of numpy.ndarray
        The lower ends (P,), the upper ends (P,), and (P,) for each other table.
    """
    check_alpha(alpha)
    tables = [1.0 - check_scores(low)]
    for table in (high, *others):
        tables.append(check_scores(table))
    sizes = [len(table) for table in tables]
    uppers = _smallest_refuted(np.concatenate(tables), alpha)
    above_low, *ends = np.split(uppers, np.cumsum(sizes)[:-1])
    return [1.0 - above_low, *ends]


def predictable_squares(scores: np.ndarray) -> np.ndarray:
    """(P, n) Z_t = (X_t - c_t)^2, where c_t is the mean of the earlier draws and one prior
    observation of 1/2.

    For any c_t, E[Z_t | past] = variance + (mean - c_t)^2, so a bound of the mean of Z bounds the
    variance (not capped at 1/4). For NaN, Z_t is the largest value that a score could give.
    """
    judged = ~np.isnan(scores)
    values = np.where(judged, scores, 0.0)
    centres = PRIOR + np.cumsum(values, axis=1) - values
    centres /= 1 + np.cumsum(judged, axis=1) - judged
    farthest = np.maximum(centres, 1 - centres)
    return np.square(np.where(judged, scores - centres, farthest))


def ends_of_rows(rows: Sequence[np.ndarray], alpha: float) -> BettingEnds:
    """The bets on each row by itself, (n,) in [0, 1] in sampling order, NaN where missing; n may differ between rows.

    Missing scores count as 0 in the lower ends, as 1 in the upper ends, and in the squares as the score farthest from the
    centre. The ends of a row are those of `all_ends`: rows are searched together, each with its own number of draws.

    Parameters
    ----------
    rows
        Arrays (n,) of scores, each with a draw at least.
    alpha
        One-sided level of each row and end, at most 1/2.

    >>> ends = ends_of_rows([np.zeros(100), np.array([0.0, 1.0])], alpha=0.05)
    >>> ends.mean_upper.round(4).tolist()
    [0.0343, 1.0]
    """
    check_alpha(alpha)
    tables = np.empty((3, len(rows)))
    for places in _searches([len(row) for row in rows]):
        together = [rows[place] for place in places]
        lengths = np.array([len(row) for row in together])
        scores = np.zeros((len(together), int(lengths.max())))
        for place, row in enumerate(together):
            scores[place, : len(row)] = row
        check_scores(scores, missing="worst")

        absent = np.isnan(scores)
        low = np.where(absent, 0.0, scores)
        high = np.where(absent, 1.0, scores)
        values = np.concatenate([1.0 - low, high, predictable_squares(scores)])
        uppers = _refuted(values, np.tile(lengths, 3), alpha, recomputed=True)
        tables[:, places] = uppers.reshape(3, -1)
    above_low, mean_upper, squares = tables
    return BettingEnds(1.0 - above_low, mean_upper, squares)


def _searches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The places of rows that are searched together: equally long blocks, and at most `TOGETHER` values of three tables."""
    together: list[int] = []
    for place in np.argsort(lengths, kind="stable").tolist():
        n = lengths[place]
        is_full = 3 * n * (len(together) + 1) > TOGETHER
        if together and (is_full or _block(n, True) != _block(lengths[together[0]], True)):
            yield together
            together = []
        together.append(place)
    if together:
        yield together


def _smallest_refuted(values: np.ndarray, alpha: float, recomputed: bool = True) -> np.ndarray:
    """The smallest mean at which the log capital reaches ln(1 / alpha), approached from the refuted
    side.
    """
    searches = math.ceil(values.size / TOGETHER)
    ends = []
    for block in np.array_split(values, max(1, min(len(values), searches))):
        lengths = np.full(len(block), values.shape[1])
        ends.append(_refuted(block, lengths, alpha, recomputed))
    return np.concatenate(ends)


def _refuted(values: np.ndarray, lengths: np.ndarray, alpha: float, recomputed: bool) -> np.ndarray:
    """(P,) smallest refuted means of rows (P, n), of which row p has ``lengths[p]`` draws; what follows them is ignored.

    Rows of unequal lengths must have equally long blocks, and stakes that are recomputed.
    """
    draws = np.ascontiguousarray(values.T)
    goal = math.log(1 / alpha)
    sizes, skews = _sizes(draws, lengths, recomputed)
    bounds = np.ones(len(values))
    at_one = _log_capital(bounds, draws, lengths, sizes, skews, goal, recomputed) - goal

    def excess(mean: np.ndarray, place: np.ndarray) -> np.ndarray:
        if not mean.any():  # a bet against 0 never gains
            return np.full(len(mean), -goal)
        if (mean == 1).all():
            return at_one[place]
        if len(place) == len(values):
            return _log_capital(mean, draws, lengths, sizes, skews, goal, recomputed) - goal
        columns = draws[:, place], lengths[place], sizes[:, place], skews[:, place]
        return _log_capital(mean, *columns, goal, recomputed) - goal

    refutable = np.flatnonzero(at_one >= 0)
    if refutable.size:
        from scipy.optimize.elementwise import find_root  # a quarter of a second to import

        bracket = (np.zeros(refutable.size), np.ones(refutable.size))
        tolerances = {"xatol": TOLERANCE, "xrtol": 0}
        roots = find_root(excess, bracket, args=(refutable,), tolerances=tolerances)
        left, right = roots.bracket
        excess_at_left = roots.f_bracket[0]
        bounds[refutable] = np.where(excess_at_left >= 0, left, right)
    return bounds


def p_value(scores: np.ndarray, mean: float | np.ndarray, alpha: float) -> np.ndarray:
    """(P,) p-value of the hypothesis that each row's mean is at least the given mean, from draws in
    sampling order.

    The stakes are sized for ``alpha``; the p-value is valid at any level. The stakes do not follow
    the capital, so that the p-value falls with the mean at every level.

    Parameters
    ----------
    scores
        (P, n) in [0, 1], in sampling order.
    mean
        In [0, 1], one number or (P,).
    alpha
        The level for which the stakes are sized.
    """
    scores = check_scores(scores)
    check_alpha(alpha)
    goal = math.log(1 / alpha)
    draws = np.ascontiguousarray(scores.T)
    means = np.full(len(scores), mean)
    lengths = np.full(len(scores), len(draws))
    sizes, skews = _sizes(draws, lengths, recomputed=False)
    log_capital = _log_capital(means, draws, lengths, sizes, skews, goal, recomputed=False)
    return np.minimum(1.0, np.exp(-log_capital))


def _log_capital(
    mean: np.ndarray,
    draws: np.ndarray,
    lengths: np.ndarray,
    sizes: np.ndarray,
    skews: np.ndarray,
    goal: float,
    recomputed: bool,
) -> np.ndarray:
    """(P,) the largest log capital at the end of a block that the bets against each column's
    ``mean`` reach.
    """
    with np.errstate(divide="ignore"):
        cap = CAP / (1 - mean)

    def stakes(sizes: np.ndarray, skews: np.ndarray) -> np.ndarray:
        divisors = np.minimum(np.maximum(1 + skews * sizes, DIVISORS[0]), DIVISORS[1])
        return np.minimum(sizes / divisors, cap)

    if not recomputed:
        gains = mean - draws
        gains *= stakes(sizes * math.sqrt(goal), skews)
        np.log1p(gains, out=gains)
        np.cumsum(gains, axis=0, out=gains)
        return np.maximum(gains.max(axis=0), 0.0)

    step = _block(len(draws), recomputed)
    shortest = lengths.min()
    log = np.zeros(len(mean))
    best = np.zeros(len(mean))
    for place, (size, skew) in enumerate(zip(sizes, skews, strict=True)):
        missing = np.maximum(goal - log, LEAST_MISSING)
        block = mean - draws[place * step : (place + 1) * step]  # stays in the processor's cache
        block *= stakes(size * np.sqrt(missing), skew)
        block += 1
        end = place * step + len(block)
        if end > shortest:  # nothing is bet after the last draw
            ranks = np.arange(place * step, end)
            block[ranks[:, None] >= lengths] = 1.0
        log = log + np.log(block.prod(axis=0))
        best = np.maximum(best, log)
    return best


def _sizes(
    draws: np.ndarray, lengths: np.ndarray, recomputed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """By block and column, from earlier draws: sqrt(2 / (draws left * variance)), and 2/3 of the
    third moment / variance.
    """
    n, columns = draws.shape
    starts = np.arange(0, n, _block(n, recomputed))
    counts = 1 + starts[:, None]
    moments = []
    power = np.ones_like(draws)
    for _ in range(3):
        power = power * draws
        sums = np.cumsum(np.add.reduceat(power, starts, axis=0), axis=0)
        sums_before = np.concatenate([np.zeros((1, columns)), sums[:-1]])
        moments.append((PRIOR + sums_before) / counts)

    mean, second, third = moments
    variance = second - mean**2
    skew = third - 3 * mean * second + 2 * mean**3
    left: np.ndarray | int = n
    if recomputed:
        left = np.maximum(lengths - starts[:, None], 1)
    return np.sqrt(2 / (left * variance)), 2 / 3 * skew / variance


def _block(n: int, recomputed: bool) -> int:
    """The number of draws that share a stake."""
    if not recomputed:
        return 1
    return min(math.ceil(n / BLOCKS), LONGEST)
