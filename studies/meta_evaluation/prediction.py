"""Whether a number predicts what comes back: rank correlation over models, some of which are alike.

The unlearned models of one method are alike, so whole methods are drawn: with 15 methods of six models each, an interval
for 90 independent models would be too narrow.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import rankdata
from scipy.stats import t as students_t

from lethe.errors import BadValue
from lethe.statistics.checks import check_alpha
from studies.meta_evaluation.auc import MODELS, ROUND, Estimate, nothing

RANKS = "Spearman, Fisher's z with the variance of Bonett and Wright (2000)"
CLUSTERS = "Spearman, Fisher's z with the standard deviation of a bootstrap over groups of models and Student's t"
GROUPS = "groups of models drawn independently, approximate"
LEAST = 4  # models, or groups of models, of a rank correlation


def rank_correlation(
    first: ArrayLike,
    second: ArrayLike,
    alpha: float = 0.05,
    groups: ArrayLike | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Spearman's rank correlation of two numbers of the same models, with an interval.

    Notes
    -----
    Independent models: tanh(atanh(r) +- z sqrt((1 + r^2 / 2) / (n - 3))), Bonett and Wright (2000). Groups: tanh(atanh(r) +-
    t s), where s is the standard deviation of atanh(r) over draws of whole groups and t the quantile of Student's
    distribution with one degree of freedom per group but one. Where all draws are alike the first interval with the number
    of groups as n replaces it.

    Examples
    --------
    >>> found = rank_correlation([1, 2, 3, 4, 5, 6], [2, 1, 4, 3, 6, 5])
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.829, -0.127, 0.986)
    """
    check_alpha(alpha)
    (x, y), own = _known([first, second], groups)
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
    (own, other, back), keys = _known([better, than, target], groups)
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


def _known(values: list[ArrayLike], groups: ArrayLike | None) -> tuple[list[np.ndarray], np.ndarray]:
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
