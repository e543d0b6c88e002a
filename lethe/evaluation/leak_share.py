"""A model's average leak probability over the forget questions, from sampled answers and exact bounds together.

Each of the two takes half the level, and the ends that result hold together: no rule chooses between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lethe.config.schema import EvaluationParams, Params
from lethe.evaluation.answer_scores import answer_parts, enough, scored, unjudged
from lethe.evaluation.run import Model
from lethe.statistics.answer_tree import EXACTLY, Masses, Remainder, Rounding, pooled_leak
from lethe.statistics.comparison import Groups, Interval, share_interval
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate

METHOD = "answer trees, Poisson sample of the rest"


def judged_exactly(params: EvaluationParams | Params) -> bool:
    """Whether exact bounds and sampled answers have the same scorer and prompts, so that they can be joined."""
    exact, score = getattr(params, "exact", None), params.score
    if exact is None or exact.scorer != params.metrics.binary:
        return False
    if score.parts is not None:
        return False  # the samples are about the answer after the thinking, the exact bounds about the whole text
    if params.sample.language is not None:
        return False  # the samples average over the prompts of a language, the exact bounds are of one prompt
    # A scorer with its own parameters may judge differently from the exact bounds.
    return exact.scorer in score.scorers


def share_that_leaks(model: Model, scorer: str, alpha: float, exactly: bool) -> Interval | None:
    """The probability that an answer leaks, averaged over the questions that the scorer can judge.

    If a judge's error was measured, the interval covers the true leak probability and comes from samples.
    """
    groups = scored(model, "forget", scorer, unjudged(model))
    if not enough(groups):
        return None
    if model.calibration:
        return judged_interval(groups, model.calibration, alpha)
    if not exactly or not _joined(model):
        return share_interval(groups, alpha)
    assert model.exact is not None
    trees = model.exact.trees
    known = [(tree.masses, tree.remainder) for tree in trees]
    exact = mean_leak_interval(known, [tree.lower for tree in trees], alpha / 2, model.exact.rounding)
    return _both(share_interval(groups, alpha / 2), exact, alpha)


def judged_interval(groups: Groups, calibration: Calibration, alpha: float) -> Interval | None:
    """The average true leak probability over questions, each end at alpha / 2; None where the calibration does not fit."""
    verdicts = np.stack([np.asarray(group, dtype=np.float64) for group in groups])
    called, missing = (verdicts == 1).sum(axis=1), np.isnan(verdicts).sum(axis=1)
    band = Rate.of(called, verdicts.shape[1], missing, calibration).average(alpha / 2)
    ends = band.bounds()
    if ends is None:
        return None
    lower, upper = (end.value for end in ends)
    return Interval(float(band.estimate[0]), lower, upper, verdicts.size, alpha, band.method, band.assumes)


def mean_leak_interval(
    questions: Sequence[tuple[Masses, Remainder]],
    lowers: Sequence[float],
    alpha: float,
    rounding: Rounding = EXACTLY,
) -> Interval:
    """The mean of P(leak) over questions that share one rate, by exact bounds; both ends together at ``alpha``.

    Each sampled end takes alpha / 2 (Garwood 1936); the larger of the certain and the sampled lower end costs nothing.
    ``lowers`` are the certain lower ends, and ``rounding`` is the largest error of the masses.
    """
    pooled = pooled_leak(questions, alpha / 2, rounding)
    m, rho = len(questions), questions[0][1].rho
    seen = math.fsum(masses.leak + remainder.leaks / rho for masses, remainder in questions) / m
    lower = min(pooled.upper, max(pooled.lower_sampled, math.fsum(lowers) / m))
    value, n = min(pooled.upper, max(lower, seen)), sum(remainder.sampled for _, remainder in questions)
    return Interval(value, lower, pooled.upper, n, alpha, METHOD, pooled.assumes)


def _joined(model: Model) -> bool:
    """Whether the exact bounds are about the questions that were sampled, with the probabilities of the model itself."""
    if model.exact is None or model.exact.how.note or not all(tree.rho for tree in model.exact.trees):
        return False  # a note: the bounds are of probabilities as one machine computes them
    asked = {prompt for part in answer_parts(model.answers, "forget", ()) for prompt in part["prompt_id"].unique()}
    return {tree.id for tree in model.exact.trees} == asked - set(unjudged(model))


def _both(sampled: Interval, exact: Interval, alpha: float) -> Interval:
    """The ends that both intervals allow; they hold together at the sum of the two levels."""
    lower = min(max(sampled.lower, exact.lower), exact.upper)
    upper = max(min(sampled.upper, exact.upper), lower)
    assumes = f"{sampled.assumes}; {exact.assumes}"
    return replace(exact, lower=lower, upper=upper, n=sampled.n, alpha=alpha, assumes=assumes)
