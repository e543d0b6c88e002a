"""A model's average leak probability over the forget questions, from sampled answers and exact bounds together.

Each of the two takes half the level, and the ends that result hold together: no rule chooses between them.
"""

from __future__ import annotations

from dataclasses import replace

from lethe.config.schema import EvaluationParams, Params
from lethe.evaluation.answer_scores import enough, scored, unjudged
from lethe.evaluation.answer_tables import answer_parts
from lethe.evaluation.run import Model
from lethe.statistics.comparison import Interval, share_interval
from lethe.statistics.judged_interval import judged_share_interval
from lethe.statistics.leak_share import mean_leak_interval


def judged_exactly(params: EvaluationParams | Params) -> bool:
    """Whether exact bounds and sampled answers have the same scorer and prompts, so that they can be joined."""
    exact, score = getattr(params, "exact", None), params.score
    if exact is None or exact.scorer != params.metrics.binary:
        return False
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
        return judged_share_interval(groups, model.calibration, alpha)
    if not exactly or not _joined(model):
        return share_interval(groups, alpha)
    assert model.exact is not None
    trees = model.exact.trees
    known = [(tree.masses, tree.remainder) for tree in trees]
    exact = mean_leak_interval(known, [tree.lower for tree in trees], alpha / 2, model.exact.rounding)
    return _both(share_interval(groups, alpha / 2), exact, alpha)


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
