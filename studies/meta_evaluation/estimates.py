"""What a number is worth over models: AUC with DeLong's interval, tests between numbers, rank correlations, robustness.

A number that knows more is larger, with one value per model, infinite where only the order matters. The unlearned models of
one method are alike, so whole methods are drawn: with 15 methods of six models each, an interval for 90 independent models
would be too narrow.

Sources of robustness: Dorna et al., "OpenUnlearning" (2025), section 4, equations 2 to 4 (one-sided); Lee, Kim and Jo,
"Measuring the Depth of LLM Unlearning via Activation Patching" (2026), meta-evaluation (symmetric). ``before`` and ``after``
are a number's values before and after an attack; the superscripts b and a of the sources.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr, ndtri
from scipy.stats import rankdata
from scipy.stats import t as students_t

from lethe.errors import BadValue
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.checks import check_alpha
from lethe.statistics.two_sample import auc_interval, kl_upper

DELONG = "DeLong, on the logit scale"
BOOTSTRAP = "standard deviation of a bootstrap over models on the logit scale, Student's t"
RANKS = "Spearman, Fisher's z with the variance of Bonett and Wright (2000)"
CLUSTERS = "Spearman, Fisher's z with the standard deviation of a bootstrap over groups of models and Student's t"
GROUPS = "groups of models drawn independently, approximate"
MODELS = "models drawn independently, normal approximation"
QUIET = np.errstate(invalid="ignore", divide="ignore")  # NaN and infinity are values here
ROUND = 1e-12  # a difference below this is rounding error
EDGE = 1e-6  # the logit scale ends this far from 0 and 1
LEAST = 4  # models, or groups of models, of a rank correlation
LEAST_GROUPS = (
    10  # groups of models of an interval of robustness: with fewer the bootstrap misses 14% to 50%
)


@dataclass(frozen=True)
class Estimate:
    """A quantity over models with a two-sided interval; the value or the interval is NaN where there is none."""

    value: float
    low: float
    high: float
    alpha: float
    method: str
    assumes: str
    n: int

    @property
    def defined(self) -> bool:
        return not math.isnan(self.value)

    def bounds(self) -> tuple[Bound, Bound]:
        rest = (self.alpha / 2, Covers.MODELS, self.assumes, self.method, self.n)
        return Bound(self.low, "lower", *rest), Bound(self.high, "upper", *rest)


def nothing(alpha: float, method: str = DELONG, n: int = 0) -> Estimate:
    return Estimate(math.nan, math.nan, math.nan, alpha, method, MODELS, n)


def kernel(positives: ArrayLike, negatives: ArrayLike) -> np.ndarray:
    """(m, n): 1 where the positive is larger, 1/2 where both are equal, 0 where it is smaller."""
    left, right = np.asarray(positives, float)[:, None], np.asarray(negatives, float)[None, :]
    return (left > right) + 0.5 * (left == right)


@QUIET
def auc_covariance(positives: np.ndarray, negatives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The AUC of each of k numbers, and their covariance S_10 / m + S_01 / n by DeLong et al. (1988); NaN for one model."""
    tables = [kernel(own, other) for own, other in zip(positives, negatives, strict=True)]
    rows, columns = (np.array([table.mean(axis=axis) for table in tables]) for axis in (1, 0))
    m, n = rows.shape[1], columns.shape[1]
    return rows.mean(axis=1), _covariance(rows) / m + _covariance(columns) / n


def _covariance(components: np.ndarray) -> np.ndarray:
    centred = components - components.mean(axis=1, keepdims=True)
    return centred @ centred.T / (components.shape[1] - 1)


def auc_estimate(positives: ArrayLike, negatives: ArrayLike, alpha: float = 0.05) -> Estimate:
    """The AUC of telling positives from negatives, with DeLong's interval on the logit scale.

    Where the variance is 0 that interval would be a point, and `two_sample.auc_interval`, valid at every size, replaces it.
    """
    check_alpha(alpha)
    own, other = (np.asarray(values, dtype=np.float64).ravel() for values in (positives, negatives))
    n = len(own) + len(other)
    if not len(own) or not len(other) or np.isnan([*own, *other]).any():
        raise BadValue("positives or negatives", "none, or NaN", "at least one number on each side")
    (value,), ((variance,),) = auc_covariance(own[None], other[None])
    value = float(value)
    if not variance > ROUND**2 or not 0 < value < 1:
        safe = auc_interval(own, other, alpha)
        return Estimate(
            value,
            min(safe.lower, value),
            max(safe.upper, value),
            alpha,
            safe.method,
            safe.assumes,
            n,
        )
    half = -float(ndtri(alpha / 2)) * math.sqrt(variance) / (value * (1 - value))
    low, high = (float(expit(logit(value) + side * half)) for side in (-1, 1))
    return Estimate(value, low, high, alpha, DELONG, MODELS, n)


@dataclass(frozen=True)
class PairTest:
    """A two-sided test of equal AUCs: ``adjusted`` is Holm's p-value over all pairs; ``holds``: it is at most alpha."""

    first: str
    second: str
    difference: float
    p_value: float
    adjusted: float
    holds: bool


def compare_aucs(
    names: Sequence[str], positives: np.ndarray, negatives: np.ndarray, alpha: float
) -> tuple[PairTest, ...]:
    """DeLong's paired z-test of every pair; some pair is told apart wrongly with probability about alpha at most."""
    check_alpha(alpha)
    aucs, covariance = auc_covariance(positives, negatives)
    pairs = list(combinations(range(len(names)), 2))
    least = min(np.shape(side)[1] for side in (positives, negatives))
    p_values = [_pair_p_value(aucs, covariance, *pair, least) for pair in pairs]
    adjusted = holm_adjusted(p_values)
    return tuple(
        PairTest(names[a], names[b], float(aucs[a] - aucs[b]), p, float(q), bool(q <= alpha))
        for (a, b), p, q in zip(pairs, p_values, adjusted, strict=True)
    )


def _pair_p_value(aucs: np.ndarray, covariance: np.ndarray, a: int, b: int, least: int) -> float:
    difference = abs(aucs[a] - aucs[b])
    variance = covariance[a, a] + covariance[b, b] - 2 * covariance[a, b]
    if difference <= ROUND:
        return 1.0
    if not variance > ROUND**2:
        # Every model has one and the same difference (1 against a constant number): Hoeffding for kernels in [-1, 1].
        return float(min(1.0, 2 * math.exp(-least * difference**2 / 2)))
    return float(2 * ndtr(-difference / math.sqrt(variance)))


def holm_adjusted(p_values: ArrayLike) -> np.ndarray:
    """Holm's adjusted p-values: the smallest alpha at which Holm's procedure rejects each hypothesis."""
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1))
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def mean_auc_over_questions(
    values: np.ndarray,
    knows: np.ndarray,
    groups: ArrayLike,
    alpha: float = 0.05,
    draws: int = 1000,
    seed: int = 0,
) -> Estimate:
    """The AUC per question, averaged over the questions, with a bootstrap interval over the models of each group.

    The questions are fixed. Percentiles miss 7% to 11% near 1. Where every draw separates all questions, or none, the
    interval of one question with as few models replaces it.
    """
    check_alpha(alpha)
    values, knows = np.asarray(values, dtype=np.float64), np.asarray(knows, dtype=bool)
    present, (names, codes) = ~np.isnan(values), np.unique(np.asarray(groups), return_inverse=True)
    sides = [(knows & present).T, (~knows & present).T]
    pairs = np.array([np.outer(own, other) for own, other in zip(*sides, strict=True)])
    wins = pairs * np.array([kernel(column, column) for column in values.T])
    value = float(_mean_auc(np.ones((1, len(values))), wins, pairs)[0])
    if math.isnan(value):
        return nothing(alpha, BOOTSTRAP, len(values))
    rng, weights = np.random.default_rng(seed), np.zeros((draws, len(values)))
    sizes = np.bincount(codes)
    for code, size in enumerate(sizes[: len(names)].tolist()):
        weights[:, codes == code] = rng.multinomial(size, np.full(size, 1 / size), size=draws)
    few = [int(side.sum(axis=1)[pairs.any(axis=(1, 2))].min()) for side in sides]
    low, high, alike = _of_draws(
        value, _mean_auc(weights, wins, pairs), int(sizes.min()), min(few), alpha
    )
    method, assumes = ("kl", "independent values in each sample") if alike else (BOOTSTRAP, MODELS)
    return Estimate(value, min(low, value), max(high, value), alpha, method, assumes, len(values))


def _of_draws(
    value: float, drawn: np.ndarray, size: int, few: int, alpha: float
) -> tuple[float, float, bool]:
    """expit(logit(v) +- t s), s the sd of the drawn logits; for draws all alike, Chernoff's of ``few`` values (True)."""
    low, high = 0.0, 1.0
    if size > 1:
        spread = float(np.nanstd(logit(np.clip(drawn, EDGE, 1 - EDGE))))
        half, centre = (
            float(students_t.isf(alpha / 2, size - 1)) * spread,
            logit(np.clip(value, EDGE, 1 - EDGE)),
        )
        low, high = (float(expit(centre + side * half)) for side in (-1, 1))
    if high - low >= ROUND and 0 < value < 1:
        return low, high, False
    level = math.log(2 / alpha) / few
    return 1 - kl_upper(1 - value, level), kl_upper(value, level), True


def _mean_auc(weights: np.ndarray, wins: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """(draws,) for weights (draws, models); a question without both kinds in a draw is left out of that draw."""
    won, of = (
        np.stack([((weights @ one) * weights).sum(axis=1) for one in own], axis=1)
        for own in (wins, pairs)
    )
    each, count = np.divide(won, of, out=np.zeros_like(won), where=of > 0), (of > 0).sum(axis=1)
    return np.where(count > 0, each.sum(axis=1) / np.maximum(count, 1), np.nan)


def rank_correlation(
    first: ArrayLike,
    second: ArrayLike,
    alpha: float = 0.05,
    groups: ArrayLike | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Spearman's rank correlation of two numbers of the same models, with an interval.

    Independent models: tanh(atanh(r) +- z sqrt((1 + r^2 / 2) / (n - 3))), Bonett and Wright (2000). Groups: tanh(atanh(r) +-
    t s), s the sd of atanh(r) over draws of whole groups; where all draws are alike, the first with the number of groups as
    n.
    """
    check_alpha(alpha)
    (x, y), own = _complete([first, second], groups)
    n, count = len(x), len(np.unique(own))
    if n < LEAST or _constant(x) or _constant(y):
        return nothing(alpha, RANKS if groups is None else CLUSTERS, n)
    value = float(np.clip(np.corrcoef(rankdata(x), rankdata(y))[0, 1], -1, 1))
    if groups is None or count == n:
        return Estimate(value, *_bonett_wright(value, n, alpha), alpha, RANKS, MODELS, n)
    low, high = -1.0, 1.0
    if count >= LEAST:
        most = 1 - 3 / (n * (n * n - 1))  # half a step below the largest possible correlation
        drawn = np.clip(_drawn(x, y, _counts(own, draws, seed)), -most, most)
        spread = float(np.nanstd(np.arctanh(drawn))) if not np.isnan(drawn).all() else 0.0
        if spread > ROUND:
            half = float(students_t.isf(alpha / 2, count - 1)) * spread
            centre = math.atanh(min(max(value, -most), most))
            low, high = min(math.tanh(centre - half), value), max(math.tanh(centre + half), value)
        else:
            low, high = _bonett_wright(value, count, alpha)
    return Estimate(value, low, high, alpha, CLUSTERS, GROUPS, n)


def compare_rank_correlations(
    better: ArrayLike,
    than: ArrayLike,
    target: ArrayLike,
    groups: ArrayLike | None = None,
    draws: int = 5000,
    seed: int = 0,
) -> tuple[float, float]:
    """The rank correlation with the target minus that of another number, and its two-sided p-value.

    A permutation test that swaps the ranks of the two numbers in random groups; the observation is one of the draws.
    """
    (own, other, back), keys = _complete([better, than, target], groups)
    if len(own) < LEAST or any(map(_constant, (own, other, back))):
        return math.nan, 1.0
    ranks, codes = (rankdata(own), rankdata(other)), np.unique(keys, return_inverse=True)[1]
    swapped = np.random.default_rng(seed).random((draws, int(codes.max()) + 1))[:, codes] < 0.5
    swapped = np.concatenate([np.zeros((1, len(own)), dtype=bool), swapped])
    first, second = (rankdata(np.where(swapped, a, b), axis=1) for a, b in (ranks[::-1], ranks))
    differences = _correlations(first, rankdata(back)) - _correlations(second, rankdata(back))
    return float(differences[0]), float(np.mean(np.abs(differences) >= abs(differences[0]) - ROUND))


def _correlations(ranks: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(draws,) Pearson's correlation of each row with ``other``; 0 for a constant row."""
    rows, column = ranks - ranks.mean(axis=1, keepdims=True), other - other.mean()
    size = np.sqrt((rows**2).sum(axis=1) * (column**2).sum())
    return np.where(size > ROUND, rows @ column / np.maximum(size, ROUND), 0.0)


def _complete(
    values: list[ArrayLike], groups: ArrayLike | None
) -> tuple[list[np.ndarray], np.ndarray]:
    given = [np.asarray(each, dtype=np.float64) for each in values]
    own = np.arange(len(given[0])) if groups is None else np.asarray(groups)
    if len({each.shape for each in given}) > 1 or own.shape != given[0].shape:
        raise BadValue("values and groups", [each.shape for each in given], "arrays of one length")
    complete = ~np.isnan(given).any(axis=0)
    return [each[complete] for each in given], own[complete]


def _constant(values: np.ndarray) -> bool:
    return len(set(values.tolist())) < 2


def _bonett_wright(value: float, n: int, alpha: float) -> tuple[float, float]:
    half = -float(ndtri(alpha / 2)) * math.sqrt((1 + value**2 / 2) / (n - 3))
    # The transformation is infinite at 1: half a step of the largest possible sum of squared rank differences inside.
    most = 1 - 3 / (n * (n * n - 1)) if abs(value) >= 1 - ROUND else 1.0
    centre = math.atanh(min(max(value, -most), most))
    low, high = math.tanh(centre - half), math.tanh(centre + half)
    return (low, high) if most == 1 else (low if value > 0 else -1.0, high if value < 0 else 1.0)


def _counts(groups: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """(draws, models): how often each model is in a draw of as many groups as there are."""
    names, codes = np.unique(groups, return_inverse=True)
    shares = np.full(len(names), 1 / len(names))
    return (
        np.random.default_rng(seed)
        .multinomial(len(names), shares, size=draws)[:, codes]
        .astype(float)
    )


@QUIET
def _drawn(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(draws,): the rank correlation with each model counted as often as drawn; NaN where a number is constant."""
    ranks = []
    for values in (x, y):
        below = (values[None, :] < values[:, None]) + 0.5 * (values[None, :] == values[:, None])
        own = counts @ below.T
        ranks.append(
            own - (counts * own).sum(axis=1, keepdims=True) / counts.sum(axis=1, keepdims=True)
        )
    first, second = ranks
    size = np.sqrt((counts * first**2).sum(axis=1) * (counts * second**2).sum(axis=1))
    return np.where(size > ROUND, (counts * first * second).sum(axis=1) / size, np.nan)


@QUIET
def relearning(
    before: ArrayLike, after: ArrayLike, retrain_before: float, retrain_after: float
) -> np.ndarray:
    """R: min((retrain's change) / (the model's change), 1) when both relearn (OpenUnlearning, equation 2).

    A model whose number falls or stays has R = 1, where the literal ratio would count noise as knowledge that returns.
    """
    change = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    expected = max(retrain_after - retrain_before, 0.0)
    # A number that does not rise, or by no more than Retrain's, has not come back.
    ratio = np.where(change <= expected, 1.0, expected / change)
    finite = np.isfinite(change) & math.isfinite(retrain_after - retrain_before)
    return np.where(finite, np.clip(ratio, 0, 1), np.nan)


@QUIET
def quantisation(before: ArrayLike, after: ArrayLike) -> np.ndarray:
    """Q of each model: min(before / after, 1) (OpenUnlearning, equation 3); two zeros give 1, a negative value NaN."""
    first, second = (np.asarray(values, dtype=np.float64) for values in (before, after))
    ratio = np.where(second == 0, np.inf, first / second)
    legal = np.isfinite(first) & np.isfinite(second) & (first >= 0) & (second >= 0)
    return np.where(legal, np.clip(ratio, 0, 1), np.nan)


@QUIET
def symmetric(first: ArrayLike, second: ArrayLike) -> np.ndarray:
    """1 - |x - y| / (|x| + |y|): symmetric R of the changes of model and Retrain, symmetric Q of before and after."""
    x, y = (np.asarray(values, dtype=np.float64) for values in (first, second))
    size = np.abs(x) + np.abs(y)
    value = np.where(size == 0, 1.0, 1 - np.abs(x - y) / size)
    return np.where(np.isfinite(size), np.clip(value, 0, 1), np.nan)


@QUIET
def harmonic_mean(first: ArrayLike, second: ArrayLike) -> np.ndarray:
    """2 / (1 / x + 1 / y) of numbers of at least 0: 0 where one is 0, NaN where one is NaN."""
    x, y = (np.asarray(values, dtype=np.float64) for values in (first, second))
    return np.where(x + y == 0, 0.0, 2 * x * y / (x + y))


@dataclass(frozen=True)
class Robustness:
    """Means of R and Q over the models, and their harmonic mean (OpenUnlearning, equation 4), each with an interval."""

    relearning: Estimate
    quantisation: Estimate
    both: Estimate


def robustness(
    r: ArrayLike,
    q: ArrayLike,
    alpha: float = 0.05,
    draws: int = 1000,
    seed: int = 0,
    groups: ArrayLike | None = None,
) -> Robustness:
    """Average R and Q, with intervals by a bootstrap of whole groups of models; none over fewer than `LEAST_GROUPS`."""
    check_alpha(alpha)
    both = [np.asarray(values, dtype=np.float64) for values in (r, q)]
    if both[0].shape != both[1].shape or both[0].ndim != 1:
        raise BadValue(
            "r and q", tuple(values.shape for values in both), "two arrays of one length"
        )
    own = np.arange(len(both[0])) if groups is None else np.asarray(groups)
    names, codes = np.unique(own, return_inverse=True)
    picked = np.random.default_rng(seed).integers(max(1, len(names)), size=(draws, len(names)))
    times = (picked[:, :, None] == np.arange(len(names))).sum(axis=1)[:, codes]
    weights = np.concatenate([np.ones((1, len(own))), times])  # all models, then those of each draw
    with np.errstate(invalid="ignore"):
        means = [weights @ np.nan_to_num(values) / (weights @ ~np.isnan(values)) for values in both]
    clusters = [own[~np.isnan(values)] for values in both]
    means.append(harmonic_mean(*means))
    clusters.append(min(clusters, key=len))
    return Robustness(
        *(
            _robust(float(each[0]), each[1:], alpha, of)
            for each, of in zip(means, clusters, strict=True)
        )
    )


def _robust(value: float, drawn: np.ndarray, alpha: float, groups: np.ndarray) -> Estimate:
    n, size = len(groups), len(np.unique(groups))
    if math.isnan(value):
        return nothing(alpha, BOOTSTRAP, n)
    low = high = math.nan
    if size >= LEAST_GROUPS:
        low, high, _ = _of_draws(value, drawn, size, size, alpha)
    return Estimate(value, low, high, alpha, BOOTSTRAP, MODELS, n)


def best_threshold(positives: ArrayLike, negatives: ArrayLike) -> float:
    """The lowest threshold of the highest balanced accuracy, halfway between two values: a model at or above it knows."""
    own, other = np.asarray(positives, dtype=np.float64), np.asarray(negatives, dtype=np.float64)
    points = np.unique(np.concatenate([own, other]))
    middles = [
        (low + high) / 2 if np.isfinite(low) and np.isfinite(high) else high
        for low, high in pairwise(points.tolist())
    ] or [float(points[0])]
    scores = [np.mean(own >= threshold) + np.mean(other < threshold) for threshold in middles]
    return float(middles[int(np.argmax(scores))])
