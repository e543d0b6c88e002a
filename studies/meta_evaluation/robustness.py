"""Whether a number survives an attack on the model.

A number m is larger where a model knows more. ``before`` and ``after`` are its values before and after an attack; the
superscripts b and a of the sources.

Sources: Dorna et al., "OpenUnlearning" (2025), section 4, equations 2 to 4 (one-sided); Lee, Kim and Jo, "Measuring the
Depth of LLM Unlearning via Activation Patching" (2026), meta-evaluation (symmetric).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.checks import check_alpha
from lethe.statistics.two_sample import kl_upper
from studies.meta_evaluation.estimates import BOOTSTRAP, MODELS, Estimate, logit_t, nothing

LEAST = 10  # groups of models of an interval: with fewer the bootstrap misses 14% to 50%


def relearning(before: ArrayLike, after: ArrayLike, retrain_before: float, retrain_after: float) -> np.ndarray:
    """R of each model: min(r, 1) with r = (retrain's change) / (the model's change) when both relearn the forget set.

    OpenUnlearning, equation 2, where the numbers rise. A model whose number falls or stays has R = 1: the literal ratio is
    negative or undefined there, so that the noise of a sampled number would count as knowledge that returns. If Retrain's
    number falls, every rise has R = 0. A value that is missing or not finite gives NaN.
    """
    change = _differences(before, after)
    expected = float(_differences([retrain_before], [retrain_after])[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        # A number that does not rise, or by no more than Retrain's, has not come back.
        ratio = np.where(change <= max(expected, 0.0), 1.0, max(expected, 0.0) / change)
    return np.where(np.isnan(change) | math.isnan(expected), np.nan, np.clip(ratio, 0, 1))


def quantisation(before: ArrayLike, after: ArrayLike) -> np.ndarray:
    """Q of each model: min(before / after, 1), so that knowledge that returns under quantisation lowers Q.

    OpenUnlearning, equation 3. Two zeros give 1; a value that is missing, negative or not finite gives NaN.
    """
    first, second = (np.asarray(values, dtype=np.float64) for values in (before, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(second == 0, np.inf, first / second)
    legal = np.isfinite(first) & np.isfinite(second) & (first >= 0) & (second >= 0)
    return np.where(legal, np.clip(ratio, 0, 1), np.nan)


def symmetric(first: ArrayLike, second: ArrayLike) -> np.ndarray:
    """1 - |x - y| / (|x| + |y|), in [0, 1]; two zeros give 1, a value that is not finite gives NaN.

    With the changes of a model and of Retrain under relearning this is the symmetric R, with the values before and after
    quantisation the symmetric Q. It punishes what falls as much as what rises.

    >>> symmetric([1.0, 1.0, 0.0, 2.0], [1.0, 0.0, 0.0, 1.0]).round(3).tolist()
    [1.0, 0.0, 1.0, 0.667]
    """
    x, y = (np.asarray(values, dtype=np.float64) for values in (first, second))
    size = np.abs(x) + np.abs(y)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(size == 0, 1.0, 1 - np.abs(x - y) / size)
    return np.where(np.isfinite(x) & np.isfinite(y), np.clip(found, 0, 1), np.nan)


def _differences(before: ArrayLike, after: ArrayLike) -> np.ndarray:
    first, second = (np.asarray(values, dtype=np.float64) for values in (before, after))
    with np.errstate(invalid="ignore"):
        found = second - first
    return np.where(np.isfinite(found), found, np.nan)


def harmonic_mean(first: float, second: float) -> float:
    """2 / (1 / x + 1 / y) of two numbers of at least 0: 0 where one is 0, NaN where one is NaN.

    >>> harmonic_mean(1.0, 0.5), harmonic_mean(0.0, 1.0)
    (0.6666666666666666, 0.0)
    """
    if math.isnan(first) or math.isnan(second):
        return math.nan
    return 2 * first * second / (first + second) if first + second else 0.0


@dataclass(frozen=True)
class Robustness:
    """Means of R and Q over the models, and their harmonic mean (OpenUnlearning, equation 4), each with an interval."""

    relearning: Estimate
    quantisation: Estimate
    both: Estimate


def cluster_picks(groups: ArrayLike, draws: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Bootstrap draws of whole groups of models: the models of one method are drawn together."""
    _, codes = np.unique(np.asarray(groups), return_inverse=True)
    places = [np.flatnonzero(codes == code) for code in range(codes.max() + 1)] if len(codes) else []
    return [
        np.concatenate([places[code] for code in rng.integers(len(places), size=len(places))])
        if places
        else np.zeros(0, int)
        for _ in range(draws)
    ]


def robustness(
    r: ArrayLike,
    q: ArrayLike,
    alpha: float = 0.05,
    draws: int = 1000,
    seed: int = 0,
    groups: ArrayLike | None = None,
) -> Robustness:
    """Average R and Q of the same models, with intervals over models; none over fewer than `LEAST` groups.

    Bootstrap standard deviation on the logit scale with Student's t, one degree of freedom per group but one.
    """
    check_alpha(alpha)
    r, q = np.asarray(r, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if r.shape != q.shape or r.ndim != 1:
        raise BadValue("r and q", (r.shape, q.shape), "two arrays of one length")
    rng = np.random.default_rng(seed)
    own = np.arange(len(r)) if groups is None else np.asarray(groups)
    picks = cluster_picks(own, draws, rng)
    means = {
        name: np.array([_means(values, pick[None])[0] for pick in picks]) for name, values in (("r", r), ("q", q))
    }
    whole = {name: float(_means(values, np.arange(len(r))[None])[0]) for name, values in (("r", r), ("q", q))}
    both = np.array([harmonic_mean(*pair) for pair in zip(means["r"], means["q"], strict=True)])
    known = {"r": own[~np.isnan(r)], "q": own[~np.isnan(q)]}
    fewest = min(known.values(), key=len)
    return Robustness(
        _interval(whole["r"], means["r"], alpha, known["r"]),
        _interval(whole["q"], means["q"], alpha, known["q"]),
        _interval(harmonic_mean(whole["r"], whole["q"]), both, alpha, fewest),
    )


def _means(values: np.ndarray, picks: np.ndarray) -> np.ndarray:
    drawn = values[picks]
    known = ~np.isnan(drawn)
    count = known.sum(axis=1)
    return np.where(count > 0, np.where(known, drawn, 0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _interval(value: float, drawn: np.ndarray, alpha: float, groups: np.ndarray) -> Estimate:
    n, size = len(groups), len(np.unique(groups))
    if math.isnan(value):
        return nothing(alpha, BOOTSTRAP, n)
    low, high = logit_t(value, drawn, size, alpha) if size >= LEAST else (math.nan, math.nan)
    if high - low < 1e-12 or (size >= LEAST and value in (0.0, 1.0)):
        # All draws alike, such as all R = 1: Chernoff's interval of a mean in [0, 1].
        level = math.log(2 / alpha) / size
        low, high = 1 - kl_upper(1 - value, level), kl_upper(value, level)
    return Estimate(value, low, high, alpha, BOOTSTRAP, MODELS, n)


def best_threshold(positives: ArrayLike, negatives: ArrayLike) -> float:
    """The threshold with the highest balanced accuracy: a model at or above it is said to know.

    The lowest of equally good thresholds, halfway between two neighbouring values; infinite values need no midpoint.

    >>> best_threshold([4, 5, 6], [1, 2, 3])
    3.5
    """
    own, other = np.asarray(positives, dtype=np.float64), np.asarray(negatives, dtype=np.float64)
    points = np.unique(np.concatenate([own, other]))
    middles = [
        (low + high) / 2 if np.isfinite(low) and np.isfinite(high) else high
        for low, high in pairwise(points.tolist())
    ] or [float(points[0])]
    scores = [np.mean(own >= threshold) + np.mean(other < threshold) for threshold in middles]
    return float(middles[int(np.argmax(scores))])
