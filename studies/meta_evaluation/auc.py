"""How well a number tells two groups of models apart: AUC with DeLong's interval, and tests between numbers.

A number that knows more is larger. Both groups hold one value per model, and several numbers of the same models are
compared in pairs, so their covariance counts. Values may be infinite: only their order matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr, ndtri
from scipy.stats import t as students_t

from lethe.errors import BadValue
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.checks import check_alpha
from lethe.statistics.two_sample import auc_interval, kl_upper

DELONG = "DeLong, on the logit scale"
BOOTSTRAP = "standard deviation of a bootstrap over models on the logit scale, Student's t"
MODELS = "models drawn independently, normal approximation"
ROUND = 1e-12  # a difference below this is rounding error
EDGE = 1e-6  # the logit scale ends this far from 0 and 1


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
        """Whether there is a value."""
        return not math.isnan(self.value)

    def bounds(self) -> tuple[Bound, Bound]:
        """The lower and the upper end, each a bound at half of alpha; raises `BadValue` where there is no interval."""
        rest = (self.alpha / 2, Covers.MODELS, self.assumes, self.method, self.n)
        return Bound(self.low, "lower", *rest), Bound(self.high, "upper", *rest)


def nothing(alpha: float, method: str = DELONG, n: int = 0) -> Estimate:
    """The estimate of a quantity that has no value."""
    return Estimate(math.nan, math.nan, math.nan, alpha, method, MODELS, n)


def kernel(positives: ArrayLike, negatives: ArrayLike) -> np.ndarray:
    """(m, n): 1 where the positive is larger, 1/2 where both are equal, 0 where it is smaller."""
    left, right = np.asarray(positives, float)[:, None], np.asarray(negatives, float)[None, :]
    return (left > right) + 0.5 * (left == right)


def auc_covariance(positives: np.ndarray, negatives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The AUC of each of k numbers and the covariance of the AUCs.

    Notes
    -----
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

    Notes
    -----
    DeLong's variance on the logit scale. Where the variance is 0 (the groups are separated, or every comparison is a
    tie) that interval would be a point: the interval of `two_sample.auc_interval` replaces it, which holds at every size.

    Examples
    --------
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
        return Estimate(value, min(safe.low, value), max(safe.high, value), alpha, safe.method, safe.assumes, n)
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

    Notes
    -----
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

    Examples
    --------
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

    Notes
    -----
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
    """Student's interval on the logit scale of a value in [0, 1], from bootstrap draws of ``size`` units.

    Parameters
    ----------
    value
        The estimate.
    drawn
        Its bootstrap draws, shape (draws,); NaN is left out.
    size
        The independent units that the bootstrap draws, at least 2 for an interval shorter than [0, 1].
    alpha
        Error probability of the interval.
    """
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
