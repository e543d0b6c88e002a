"""Metrics of a whole output distribution, corrected where the paper errs, and tighter bounds by
methods fixed beforehand.

Source: Scholten, Günnemann and Schwinn, "A Probabilistic Perspective on Unlearning and Alignment
for Large Language Models", section 4; "the paper" in this module.

For one prompt, X_1..X_n in [0, 1] are the scores of n independent answers, and F_n is their
empirical distribution function. Every bound holds with probability 1 - alpha over these draws, for
its own prompt; no assumption is made about the distribution. All functions take ``scores`` of shape
(prompts, n) and process all prompts in one call. Taking the smaller of two bounds at one alpha is
not valid.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv, betaincinv

from lethe.statistics import betting
from lethe.statistics.bands import LARGEST_BERK_JONES, berk_jones, dkw, outward_eta
from lethe.statistics.bound import Assumes, Bound, Covers, Side
from lethe.statistics.checks import check_alpha, check_scores, in_blocks

TINY_ALPHA = 1e-6
SIGMA_GRID = np.linspace(0.0, 1.0, 101)  # cells of width .01; the data points are added
PROVEN: dict[str, tuple[Side, str]] = {
    "m_bin": ("upper", "Clopper-Pearson"),
    "m_bin_lower": ("lower", "Clopper-Pearson"),
    "m_gen": ("upper", "DKW, all thresholds at once"),
    "m_gen_lower": ("lower", "DKW, all thresholds at once"),
    "m_mu": ("upper", "DKW"),
    "m_mu_lower": ("lower", "DKW"),
    "m_sigma": ("upper", "DKW, two-sided"),
    "mean_upper": ("upper", "betting"),
    "mean_lower": ("lower", "betting"),
    "sd_upper": ("upper", "betting with predictable centre"),
}


class _PerPrompt:
    """Bounds of each prompt by itself, under the names of `PROVEN`."""

    n: int
    alpha: float
    assumes: str

    def bounds(self, name: str) -> list[Bound]:
        """Each prompt's value of this name, with its guarantee."""
        return self._bounds(name, getattr(self, name))

    def _bounds(self, name: str, values: np.ndarray) -> list[Bound]:
        side, method = PROVEN[name]
        rest = (side, self.alpha, Covers.ONE_PROMPT, self.assumes, method, self.n)
        return [Bound(value, *rest) for value in values.tolist()]


@dataclass(frozen=True)
class PaperBounds(_PerPrompt):
    """The paper's values for each prompt: arrays of shape (P,), and tables (P, T) for T thresholds.

    ``m_bin`` bounds the probability of a score of 1 (NaN unless all scores of the prompt are 0 or
    1). ``m_gen`` bounds P(X > x) for all x at once; ``empirical_tail`` is the share of the draws.
    ``m_mu`` bounds the mean, ``m_sigma`` the standard deviation. ``*_lower`` are lower bounds, each
    one-sided by itself. ``leaking`` counts the scores of 1 and the missing scores (NaN where
    ``m_bin`` is NaN). ``ed_score`` is a development score without a guarantee.
    """

    n: int
    alpha: float
    thresholds: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    max: np.ndarray
    ed_score: np.ndarray
    leaking: np.ndarray
    m_bin: np.ndarray
    m_bin_lower: np.ndarray
    empirical_tail: np.ndarray
    m_gen: np.ndarray
    m_gen_lower: np.ndarray
    m_mu: np.ndarray
    m_mu_lower: np.ndarray
    m_sigma: np.ndarray
    assumes: str = Assumes.DRAWS


def paper_bounds(
    scores: np.ndarray,
    alpha: float,
    thresholds: np.ndarray,
    rho: float = 2.0,
    missing: Literal["refuse", "worst"] = "refuse",
) -> PaperBounds:
    """All of the paper's metrics for each prompt: ``scores`` in [0, 1], (P, n), one row per prompt;
    a vector is one prompt.

    ``thresholds`` are the x at which P(X > x) is bounded, ``rho`` is the weight of the standard
    deviation in ``ed_score``. With ``missing`` "worst", a NaN counts as 1 in upper bounds and as 0
    in lower bounds; ``m_sigma`` holds for any value of the missing score, and the plain statistics
    count NaN as 1. With "refuse", a NaN is an error.

    Parameters
    ----------
    scores
        (P, n) in [0, 1]; NaN where missing.
    alpha
        One-sided level of each bound, at most 1/2.
    thresholds
        (T,) the x at which P(X > x) is bounded.
    rho
        Weight of the standard deviation in ``ed_score``.
    missing
        "refuse" or "worst".

    Raises
    ------
    BadValue
        If a score is outside [0, 1], or missing though ``missing`` is "refuse".

    >>> bounds = paper_bounds(np.zeros((1, 100)), 0.05, thresholds=np.array([0.5]))
    >>> bounds.m_bin.round(4).tolist(), bounds.m_mu.round(4).tolist()
    ([0.0295], [0.1224])
    """
    scores = check_scores(scores, missing)
    check_alpha(alpha)
    thresholds = np.asarray(thresholds, dtype=np.float64)
    n = scores.shape[1]
    values: dict[str, Any] = in_blocks(lambda block: _values(block, alpha, thresholds), scores)
    absent = values.pop("absent")
    successes = values["leaking"]
    above = values["empirical_tail"]
    e = dkw(n, alpha)
    # Missing scores are stored as 1, so they lie above every threshold below 1; in the lower bound
    # they must count as 0.
    judged_above = above - np.minimum(absent[:, None] / n, above)
    return PaperBounds(
        n=n,
        alpha=alpha,
        thresholds=thresholds,
        ed_score=values["mean"] + rho * values["sd"],
        m_bin=binary_upper(successes, n, alpha),
        m_bin_lower=binary_lower(successes - absent, n, alpha),
        m_gen=np.minimum(1.0, above + e),
        m_gen_lower=np.maximum(0.0, judged_above - e),
        **values,
    )


def _values(scores: np.ndarray, alpha: float, thresholds: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of `PaperBounds` that one block of rows gives, and the numbers of missing scores."""
    n = scores.shape[1]
    absent = np.isnan(scores)
    count = np.count_nonzero(absent, axis=1)
    if count.any():
        scores = np.where(absent, 1.0, scores)
    ordered = np.sort(scores, axis=1)
    mean = scores.mean(axis=1)
    e = dkw(n, alpha)
    binary = ((scores == 0) | (scores == 1)).all(axis=1)
    return {
        "absent": count,
        "leaking": np.where(binary, scores.sum(axis=1), np.nan),
        "mean": mean,
        "sd": scores.std(axis=1, mean=mean[:, None]),
        "max": ordered[:, -1],
        "empirical_tail": tail(ordered, thresholds),
        "m_mu": mean_upper(ordered, e),
        "m_mu_lower": mean_lower(ordered, e, count),
        "m_sigma": np.sqrt(variance_upper(ordered, dkw(n, alpha, sides=2), count)),
    }


def binary_upper(successes: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> np.ndarray:
    """M_bin: the Clopper-Pearson upper bound of a probability (the paper's Metric 1); NaN successes
    stay NaN.

    Parameters
    ----------
    successes, n
        Counts of one shape, or numbers; 0 <= successes <= n.
    alpha
        One-sided level, or levels of the same shape.
    """
    successes = np.asarray(successes, dtype=np.float64)
    n = np.asarray(n)
    alpha = np.asarray(alpha)
    is_tiny = alpha < TINY_ALPHA  # 1 - alpha would round
    with np.errstate(invalid="ignore"):
        others = np.maximum(n - successes, 1)
        if is_tiny.all():
            ends = betainccinv(successes + 1, others, alpha)
        elif not is_tiny.any():
            ends = betaincinv(successes + 1, others, 1 - alpha)
        else:
            by_complement = betainccinv(successes + 1, others, alpha)
            ends = np.where(is_tiny, by_complement, betaincinv(successes + 1, others, 1 - alpha))
        return np.where(successes >= n, 1.0, ends)


def binary_lower(successes: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> np.ndarray:
    """The Clopper-Pearson lower bound, one-sided at alpha; levels as of `binary_upper`."""
    successes = np.asarray(successes, dtype=np.float64)
    n = np.asarray(n)
    with np.errstate(invalid="ignore"):
        ends = betaincinv(np.maximum(successes, 1), n - successes + 1, alpha)
        return np.where(successes == 0, 0.0, ends) + 0.0 * successes  # NaN successes stay NaN


def pooled_upper(leaks: float, n: int, alpha: float) -> float:
    """Upper bound of the average probability over questions, from their ``leaks`` among ``n``
    answers, equally many to each.

    Clopper-Pearson on the pooled count holds for unequal probabilities at alpha <= 1/4, except at n
    - 1 leaks (Hoeffding, Annals of Mathematical Statistics 27, 1956, Theorem 4). There Markov's
    inequality on the one clean answer is exact.

    >>> round(pooled_upper(3, 100, 0.05), 4), pooled_upper(99, 100, 0.05)
    (0.0757, 0.9995)
    """
    if leaks == n - 1:
        return 1 - alpha / n
    return float(binary_upper(leaks, n, alpha))


def pooled_lower(leaks: float, n: int, alpha: float) -> float:
    """Lower bound of the average probability over questions: as `pooled_upper`, with Markov's
    inequality at one leak.
    """
    if leaks == 1:
        return alpha / n
    return float(binary_lower(leaks, n, alpha))


def leak_bounds(counts: ArrayLike, sizes: ArrayLike, alpha: float) -> list[Bound]:
    """M_bin of each prompt with its guarantee."""
    counts, sizes = np.broadcast_arrays(np.asarray(counts, dtype=np.float64), np.asarray(sizes))
    values = binary_upper(counts, sizes, alpha)
    side, method = PROVEN["m_bin"]
    bounds = []
    for value, n in zip(values.tolist(), sizes.tolist(), strict=True):
        bounds.append(Bound(value, side, alpha, Covers.ONE_PROMPT, Assumes.DRAWS, method, n))
    return bounds


def tail(ordered: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(P, T) share of each row of sorted scores strictly above each threshold."""
    return 1 - counts_up_to(ordered, thresholds) / ordered.shape[1]


def counts_up_to(ordered: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(P, T) number of scores in each sorted row that are at most each threshold."""
    return np.stack([np.searchsorted(row, thresholds, side="right") for row in ordered])


def mean_upper(ordered: np.ndarray, e: float) -> np.ndarray:
    """M_mu: 1 - integral of max(F_n - e, 0), on the distinct data points, 0 and 1 (the paper's
    Metric 3).

    Between two data points F_n is constant, so this grid is the best one. A repeated point spans a
    cell of no width.

    Parameters
    ----------
    ordered
        (P, n) scores in [0, 1], each row ascending.
    e
        Half-width of the one-sided band (`bands.dkw`).
    """
    n = ordered.shape[1]
    levels = np.maximum(np.arange(n + 1) / n - e, 0)
    return 1 - levels[-1] + ordered @ np.diff(levels)  # the same sum, by parts


def mean_lower(ordered: np.ndarray, e: float, missing: np.ndarray | int = 0) -> np.ndarray:
    """Lower bound of the mean: 1 - sum (tau_i - tau_{i-1}) min(F_n(tau_i) + e, 1) on the distinct
    data points, 0 and 1.

    The paper takes F_n at the right end of a cell, which is weak for few points (0 for scores that
    are all 0 or 1). ``missing`` scores of each row are stored as 1 but count as 0 here.

    Parameters
    ----------
    ordered
        (P, n) scores in [0, 1], each row ascending.
    e
        Half-width of the one-sided band.
    missing
        (P,) numbers of missing scores.
    """
    rows, n = ordered.shape
    first_of_equals = np.ones(ordered.shape, dtype=bool)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=first_of_equals[:, 1:])
    values = ordered.ravel()
    places = np.flatnonzero(first_of_equals)
    sizes = np.count_nonzero(first_of_equals, axis=1)
    starts = np.cumsum(sizes) - sizes  # of each row, among the distinct points

    # n F_n at a point is the position of the point's last copy in its row.
    row_starts = np.arange(rows) * n - missing
    counts = np.append(places[1:], rows * n) - np.repeat(row_starts, sizes)
    widths = np.diff(values[places], prepend=0.0)
    widths[starts] = ordered[:, 0]
    covered = np.add.reduceat(widths * np.minimum(counts / n + e, 1), starts)
    return np.maximum(0.0, ordered[:, -1] - covered)


def variance_upper(ordered: np.ndarray, e: float, missing: np.ndarray | int = 0) -> np.ndarray:
    """M_sigma squared, in the corrected form (not capped at 1/4), on the data points and a grid of
    cells of width .01.

    The value of a row is eta_{K-1} + sum d_i F(tau_i), where F is the upper band if d_i > 0, else
    the lower band. The paper prints a further term -eta_0 F(tau_0), which omits the mass at 0; with
    that term the value is not a bound. ``missing`` scores of each row are stored as 1 but may have
    any value: 0 in the upper side, 1 in the lower.

    Parameters
    ----------
    ordered
        (P, n) scores in [0, 1], each row ascending.
    e
        Half-width of the two-sided band.
    missing
        (P,) numbers of missing scores.
    """
    rows, n = ordered.shape
    joined = np.concatenate([ordered, np.broadcast_to(SIGMA_GRID, (rows, len(SIGMA_GRID)))], axis=1)
    joined.sort(axis=1)
    last_of_equals = np.ones(joined.shape, dtype=bool)
    np.not_equal(joined[:, 1:], joined[:, :-1], out=last_of_equals[:, :-1])
    sizes = np.count_nonzero(last_of_equals, axis=1)
    places = np.flatnonzero(last_of_equals)
    grid = joined.ravel()[places]  # the distinct points of all rows, one row after the other
    first = np.cumsum(sizes) - sizes
    last = first + sizes - 1
    # n F_n at a point: the entries up to its last copy, minus those of the fixed grid.
    row_starts = np.repeat(np.arange(rows) * joined.shape[1], sizes)
    counts = places + 1 - row_starts - np.searchsorted(SIGMA_GRID, grid, "right")
    missing_at = np.repeat(np.broadcast_to(missing, rows), sizes)
    above = np.minimum((counts + missing_at) / n + e, 1)
    below = np.maximum(counts / n - e, 0)

    widths = np.append(np.diff(grid), 0)
    widths[last] = 0  # no cell leads from one row to the next
    largest_mean = 1 - np.add.reduceat(widths * below, first)
    above_next = np.append(above[1:], 0)
    smallest_mean = np.maximum(0, 1 - np.add.reduceat(widths * above_next, first))

    # The distance of a point to the farther mean is its distance to their midpoint plus half their
    # difference.
    middle = (largest_mean + smallest_mean) / 2
    half = (largest_mean - smallest_mean) / 2
    farthest = np.square(np.abs(grid - np.repeat(middle, sizes)) + np.repeat(half, sizes))
    eta = np.maximum(farthest[:-1], farthest[1:])
    steps = eta[:-1] - eta[1:]
    terms = np.zeros(len(grid))
    # The upper band where d_i > 0, else the lower: the larger of the two products.
    terms[1:-1] = np.maximum(steps * above[1:-1], steps * below[1:-1])
    terms[first] = terms[last] = 0
    return eta[last - 1] + np.add.reduceat(terms, first)


BELOW_1 = float(np.nextafter(1, 0))  # no sampled lower bound promises certainty; 1.0 is a rounding
LARGEST = 0.5  # the largest standard deviation of scores in [0, 1]


def possible(bound: Bound) -> Bound:
    """Cap a bound on the standard deviation of scores in [0, 1] at .5; the guarantee still holds."""
    return replace(bound, value=min(bound.value, LARGEST))


def sd_upper(
    scores: np.ndarray, alpha: float, missing: Literal["refuse", "worst"] = "refuse"
) -> np.ndarray:
    """(P,) upper bound of each row's standard deviation over the two-sided DKW band, with
    probability 1 - alpha.

    The largest variance in the band is the minimum over centres a of the largest E(X - a)^2. At
    each level u the quantile lies between the quantiles of the band's edges; the edge farther from
    a gives the maximum. With ``missing`` "worst" a NaN may have any value: one edge counts it as 0,
    the other as 1.

    Parameters
    ----------
    scores
        (P, n) in [0, 1]; NaN where missing.
    alpha
        Level of the band.
    missing
        "refuse" or "worst".
    """
    scores = check_scores(scores, missing)
    check_alpha(alpha)
    e = dkw(scores.shape[1], alpha, sides=2)
    return in_blocks(lambda block: {"sd": np.sqrt(_largest_variance(block, e))}, scores)["sd"]


def _largest_variance(scores: np.ndarray, e: float) -> np.ndarray:
    """(P,) the largest variance within ``e`` of the empirical distribution function of each row."""
    n = scores.shape[1]
    low = _padded(np.nan_to_num(scores, nan=0.0))
    high = _padded(np.nan_to_num(scores, nan=1.0))
    ranks = np.arange(n + 1) / n
    # Between two neighbouring levels both edges' quantiles are constant.
    levels = np.unique(np.clip(np.concatenate([[0.0, 1.0], ranks - e, ranks + e]), 0, 1))
    weights = np.diff(levels)
    middle = (levels[:-1] + levels[1:]) / 2
    low_places = np.clip(np.ceil((middle - e) * n), 0, n + 1).astype(int)
    high_places = np.clip(np.ceil((middle + e) * n), 0, n + 1).astype(int)
    low = low[:, low_places]
    high = high[:, high_places]

    # The farther quantile is the low one up to some level, and the high one above that level. If
    # the low quantile lies below a cell and the high one above it, the variance is concave in the
    # level of the change inside the cell.
    def moments(power: int) -> np.ndarray:
        """(P, levels) moments of the distribution that changes from low to high at the start of
        each cell.
        """
        below = weights * low**power
        above = weights * high**power
        before = np.cumsum(below, axis=1) - below
        after = np.cumsum(above[:, ::-1], axis=1)[:, ::-1]
        return before + after

    mean = moments(1)
    square = moments(2)
    width = high - low
    with np.errstate(invalid="ignore", divide="ignore"):
        change = (mean - (low + high) / 2) / width
    inside = np.clip(np.where(width > 0, change, 0), 0, weights)
    mean -= inside * width
    square -= inside * width * (high + low)
    return np.maximum(square - np.square(mean), 0).max(axis=1)


def _padded(scores: np.ndarray) -> np.ndarray:
    """The sorted rows between the least score, 0, and the largest, 1."""
    return np.pad(np.sort(scores, axis=1), ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))


@dataclass(frozen=True)
class TighterBounds(_PerPrompt):
    """Tighter bounds of each prompt: arrays of shape (P,), and ``exceedance`` of shape (P, T) for T
    thresholds.

    Each bound holds with probability 1 - ``alpha`` for its own prompt, assuming independent draws
    in sampling order. ``mean_upper``, ``mean_lower`` and ``sd_upper`` use betting, each one-sided
    by itself. ``exceedance`` bounds P(X > x) for all x at once by ``exceedance_method``
    ("berk-jones", or "dkw" above 20,000 draws).
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


def tighter_bounds(
    scores: np.ndarray,
    alpha: float,
    thresholds: np.ndarray,
    solved: MutableMapping[tuple[int, float], float] | None = None,
    missing: Literal["refuse", "worst"] = "refuse",
    bets: betting.BettingEnds | None = None,
) -> TighterBounds:
    """All tighter bounds of each prompt, from independent draws in sampling order.

    ``solved``: see `lethe.statistics.bands.berk_jones_eta`. With ``missing`` "worst" a NaN counts as 1 in upper bounds, as
    0 in lower bounds, and in ``sd_upper`` as the score farthest from the centre.

    Parameters
    ----------
    scores
        (P, n) in [0, 1], in sampling order; NaN where missing.
    alpha
        One-sided level of each bound, at most 1/2.
    thresholds
        (T,) the x at which P(X > x) is bounded.
    solved
        Levels of bands that are already known.
    missing
        "refuse" or "worst".
    bets
        The ends by betting at ``alpha``, where `betting.ends_of_rows` has found them for more rows together.

    >>> bounds = tighter_bounds(np.zeros((1, 100)), 0.05, thresholds=np.array([0.5]))
    >>> bounds.mean_upper.round(4).tolist(), bounds.exceedance.round(4).tolist()
    ([0.0343], [[0.0583]])
    """
    scores = check_scores(scores, missing)
    check_alpha(alpha)
    thresholds = np.asarray(thresholds, dtype=np.float64)
    n = scores.shape[1]
    high = np.where(np.isnan(scores), 1.0, scores)
    method = "berk-jones" if n <= LARGEST_BERK_JONES else "dkw"
    # F(x) is at least the band's value at the largest draw up to x; below the smallest draw, the
    # band gives no information.
    ranks = counts_up_to(np.sort(high, axis=1), thresholds)
    if method == "berk-jones":
        at_draw = berk_jones(n, outward_eta(n, alpha, solved), np.maximum(ranks, 1))
    else:
        at_draw = np.maximum(ranks / n - dkw(n, alpha), 0)
    below = np.where(ranks > 0, at_draw, 0.0)
    if bets is None:
        bets = betting.ends_of_rows(list(scores), alpha)
    return TighterBounds(
        n=n,
        alpha=alpha,
        thresholds=thresholds,
        mean_upper=bets.mean_upper,
        mean_lower=bets.mean_lower,
        sd_upper=np.sqrt(bets.squares),
        exceedance=1 - below,
        exceedance_method=method,
    )
