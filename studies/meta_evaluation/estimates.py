"""What a number is worth over models: AUC with DeLong's interval, tests between numbers, and rank correlations.

A number that knows more is larger, with one value per model. Several numbers of the same models are compared in pairs, so
their covariance counts. Values may be infinite: only their order matters. The unlearned models of one method are alike, so
whole methods are drawn: with 15 methods of six models each, an interval for 90 independent models would be too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

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
ROUND = 1e-12  # a difference below this is rounding error
EDGE = 1e-6  # the logit scale ends this far from 0 and 1
LEAST = 4  # models, or groups of models, of a rank correlation


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
    def known(self) -> bool:
        return not math.isnan(self.value)

    def bounds(self) -> tuple[Bound, Bound]:
        """The lower and the upper end, each a bound at half of alpha; raises `BadValue` where there is no interval."""
        rest = (self.alpha / 2, Covers.MODELS, self.assumes, self.method, self.n)
        return Bound(self.low, "lower", *rest), Bound(self.high, "upper", *rest)


def nothing(alpha: float, method: str = DELONG, n: int = 0) -> Estimate:
    return Estimate(math.nan, math.nan, math.nan, alpha, method, MODELS, n)


def kernel(positives: ArrayLike, negatives: ArrayLike) -> np.ndarray:
    """(m, n): 1 where the positive is larger, 1/2 where both are equal, 0 where it is smaller."""
    left, right = np.asarray(positives, float)[:, None], np.asarray(negatives, float)[None, :]
    return (left > right) + 0.5 * (left == right)


def auc_covariance(positives: np.ndarray, negatives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The AUC of each of k numbers and the covariance of the AUCs.

    DeLong, DeLong and Clarke-Pearson (1988): the mean of a model's comparisons with the other group is its structural
    component, and the covariance is S_10 / m + S_01 / n. A group of one model gives the covariance NaN.
    """
    tables = [kernel(own, other) for own, other in zip(positives, negatives, strict=True)]
    rows, columns = (np.array([table.mean(axis=axis) for table in tables]) for axis in (1, 0))
    m, n = rows.shape[1], columns.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = _covariance(rows) / m + _covariance(columns) / n
    return rows.mean(axis=1), covariance


def _covariance(components: np.ndarray) -> np.ndarray:
    centred = components - components.mean(axis=1, keepdims=True)
    return centred @ centred.T / (components.shape[1] - 1)


def auc_estimate(positives: ArrayLike, negatives: ArrayLike, alpha: float = 0.05) -> Estimate:
    """The AUC of telling positives from negatives, with an interval.

    DeLong's variance on the logit scale. Where the variance is 0 (the groups are separated, or every comparison is a
    tie) that interval would be a point: the interval of `two_sample.auc_interval` replaces it, which holds at every size.

    >>> found = auc_estimate([3, 4, 5, 6, 2.5], [1, 2, 3.5, 0, 1.5])
    >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
    (0.92, 0.49, 0.99)
    >>> auc_estimate([1, 1, 1], [0, 0, 0]).high
    1.0
    """
    check_alpha(alpha)
    own, other = (_checked(name, values) for name, values in (("positives", positives), ("negatives", negatives)))
    n = len(own) + len(other)
    (value,), ((variance,),) = auc_covariance(own[None], other[None])
    value = float(value)
    if not variance > ROUND**2 or not 0 < value < 1:
        safe = auc_interval(own, other, alpha)
        return Estimate(value, min(safe.lower, value), max(safe.upper, value), alpha, safe.method, safe.assumes, n)
    half = -float(ndtri(alpha / 2)) * math.sqrt(variance) / (value * (1 - value))
    low, high = (float(expit(logit(value) + side * half)) for side in (-1, 1))
    return Estimate(value, low, high, alpha, DELONG, MODELS, n)


def _checked(name: str, values: ArrayLike) -> np.ndarray:
    given = np.asarray(values, dtype=np.float64).ravel()
    if not len(given):
        raise BadValue(name, "no values", "at least one value")
    if np.isnan(given).any():
        raise BadValue(name, "NaN", "numbers")
    return given


@dataclass(frozen=True)
class PairTest:
    """Whether two numbers tell the groups apart differently well: a two-sided test of equal AUCs.

    ``difference`` is the AUC of ``first`` minus that of ``second``. ``adjusted`` is Holm's p-value over all pairs, and
    ``holds`` says whether it is at most alpha.
    """

    first: str
    second: str
    difference: float
    p_value: float
    adjusted: float
    holds: bool


def compare_aucs(
    names: Sequence[str], positives: np.ndarray, negatives: np.ndarray, alpha: float
) -> tuple[PairTest, ...]:
    """Test every pair of numbers for equal AUCs; some pair is told apart wrongly with probability about alpha at most.

    DeLong's paired z-test: a normal approximation over models. Two numbers that order all models alike have p-value 1.
    """
    check_alpha(alpha)
    aucs, covariance = auc_covariance(positives, negatives)
    pairs = list(combinations(range(len(names)), 2))
    least = min(np.shape(positives)[1], np.shape(negatives)[1])
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
    """Holm's adjusted p-values: the smallest alpha at which Holm's procedure rejects each hypothesis.

    >>> holm_adjusted([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
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
    """The AUC per question, averaged over the questions, with an interval over models.

    expit(logit(v) +- t s), where s is the standard deviation of the logit over bootstrap draws of models and t the quantile
    of Student's distribution with as many degrees of freedom as the smaller group has models but one: the questions are
    fixed. Percentiles miss 7% to 11% near 1. Where every draw separates all questions, or none, the interval would be a
    point: the interval of one question with as few models replaces it, as in `auc_estimate`.
    """
    check_alpha(alpha)
    values, knows = np.asarray(values, dtype=np.float64), np.asarray(knows, dtype=bool)
    groups = np.asarray(groups)
    present = ~np.isnan(values)
    wins = np.empty((values.shape[1], len(values), len(values)))
    pairs = np.empty_like(wins)
    for question in range(values.shape[1]):
        there = present[:, question]
        pairs[question] = np.outer(knows[:, question] & there, ~knows[:, question] & there)
        wins[question] = pairs[question] * kernel(values[:, question], values[:, question])
    whole = _mean_auc(np.ones((1, len(values))), wins, pairs)[0]
    if math.isnan(whole):
        return nothing(alpha, BOOTSTRAP, len(values))
    rng = np.random.default_rng(seed)
    weights = np.zeros((draws, len(values)))
    for group in np.unique(groups):
        places = np.flatnonzero(groups == group)
        weights[:, places] = rng.multinomial(len(places), np.full(len(places), 1 / len(places)), size=draws)
    drawn = _mean_auc(weights, wins, pairs)
    value, method, assumes = float(whole), BOOTSTRAP, MODELS
    least = min(int((groups == group).sum()) for group in np.unique(groups))
    low, high = logit_t(value, drawn, least, alpha)
    if high - low < ROUND or not 0 < value < 1:
        sides = [(knows & present).sum(axis=0), (~knows & present).sum(axis=0)]
        few = [int(side[(sides[0] > 0) & (sides[1] > 0)].min()) for side in sides]
        level = math.log(2 / alpha) / min(few)
        low, high, method = 1 - kl_upper(1 - value, level), kl_upper(value, level), "kl"
        assumes = "independent values in each sample"
    return Estimate(value, min(low, value), max(high, value), alpha, method, assumes, len(values))


def logit_t(value: float, drawn: np.ndarray, size: int, alpha: float) -> tuple[float, float]:
    """Student's interval on the logit scale of a value in [0, 1], from bootstrap draws of ``size`` units; NaN is left out."""
    if size < 2:
        return 0.0, 1.0
    spread = float(np.nanstd(logit(np.clip(drawn, EDGE, 1 - EDGE))))
    half, centre = float(students_t.isf(alpha / 2, size - 1)) * spread, logit(np.clip(value, EDGE, 1 - EDGE))
    low, high = (float(expit(centre + side * half)) for side in (-1, 1))
    return low, high


def _mean_auc(weights: np.ndarray, wins: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """(draws,) for weights (draws, models); a question without both kinds in a draw is left out of that draw."""
    won = np.stack([((weights @ table) * weights).sum(axis=1) for table in wins], axis=1)
    all_pairs = np.stack([((weights @ table) * weights).sum(axis=1) for table in pairs], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(all_pairs > 0, won / all_pairs, np.nan)
    known = ~np.isnan(each)
    count = known.sum(axis=1)
    return np.where(count > 0, np.where(known, each, 0).sum(axis=1) / np.maximum(count, 1), np.nan)


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
    t s), where s is the standard deviation of atanh(r) over draws of whole groups and t the quantile of Student's
    distribution with one degree of freedom per group but one. Where all draws are alike the first interval with the number
    of groups as n replaces it.

    >>> found = rank_correlation([1, 2, 3, 4, 5, 6], [2, 1, 4, 3, 6, 5])
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.829, -0.127, 0.986)
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
    """The rank correlation of one number with the target minus that of another, and its two-sided p-value.

    A permutation test: the ranks of the two numbers are swapped in random groups. It is exact where the two numbers are
    exchangeable within each group, given the target; the observation counts as one of the draws.
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


def _complete(values: list[ArrayLike], groups: ArrayLike | None) -> tuple[list[np.ndarray], np.ndarray]:
    given = [np.asarray(each, dtype=np.float64) for each in values]
    own = np.arange(len(given[0])) if groups is None else np.asarray(groups)
    if len({each.shape for each in given}) > 1 or own.shape != given[0].shape:
        raise BadValue("values and groups", [each.shape for each in given], "arrays of one length")
    kept = ~np.isnan(given).any(axis=0)
    return [each[kept] for each in given], own[kept]


def _constant(values: np.ndarray) -> bool:
    return len(set(values.tolist())) < 2


def _bonett_wright(value: float, n: int, alpha: float) -> tuple[float, float]:
    half = -float(ndtri(alpha / 2)) * math.sqrt((1 + value**2 / 2) / (n - 3))
    if abs(value) >= 1 - 1e-12:
        # The transformation is infinite at 1: half a step of the largest possible sum of squared rank differences inside.
        centre = math.atanh(math.copysign(1 - 3 / (n * (n * n - 1)), value))
        low, high = sorted((math.tanh(centre - math.copysign(half, value)), math.copysign(1.0, value)))
        return low, high
    centre = math.atanh(value)
    return math.tanh(centre - half), math.tanh(centre + half)


def _counts(groups: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """(draws, models): how often each model is in a draw of as many groups as there are."""
    _, codes = np.unique(groups, return_inverse=True)
    size = int(codes.max()) + 1
    return (
        np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), size=draws)[:, codes].astype(float)
    )


def _drawn(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(draws,): the rank correlation with each model counted as often as it was drawn; NaN where a number is constant."""
    ranks = []
    for values in (x, y):
        below = (values[None, :] < values[:, None]) + 0.5 * (values[None, :] == values[:, None])
        own = counts @ below.T
        ranks.append(own - (counts * own).sum(axis=1, keepdims=True) / counts.sum(axis=1, keepdims=True))
    first, second = ranks
    size = np.sqrt((counts * first**2).sum(axis=1) * (counts * second**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(size > ROUND, (counts * first * second).sum(axis=1) / size, np.nan)
