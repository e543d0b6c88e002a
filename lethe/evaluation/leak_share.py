"""A model's average leak probability over the forget questions: from exact bounds if they are tighter, else from samples.

`lethe.statistics.leak_share.exact_is_sharper` chooses between the two before anyone looks at the answers that count. The
other interval has no part in the comparison.
"""

from __future__ import annotations

from lethe.config.schema import EvaluationParams, Params
from lethe.evaluation.answer_scores import scored, unjudged
from lethe.evaluation.answer_tables import answer_parts
from lethe.evaluation.run import Model, Run
from lethe.statistics.comparison import Interval, share_interval
from lethe.statistics.judged_interval import judged_share_interval
from lethe.statistics.leak_share import exact_is_sharper, mean_leak_interval


def judged_exactly(params: EvaluationParams | Params) -> bool:
    """Whether exact bounds and sampled answers have the same scorer and prompts, so that one can replace the other."""
    exact, score = getattr(params, "exact", None), params.score
    if exact is None or exact.exact_only or exact.scorer != params.metrics.binary:
        return False
    if params.sample.language is not None:
        return False  # the samples average over the prompts of a language, the exact bounds are of one prompt
    # A scorer with its own parameters may judge differently from the exact bounds.
    return exact.scorer in score.scorers


def share_that_leaks(model: Model, scorer: str, alpha: float, exactly: bool) -> Interval | None:
    """The probability that an answer leaks, averaged over the questions that the scorer can judge.

    If a judge's error was measured, the interval covers the true leak probability and comes from samples.

    Parameters
    ----------
    model
        The model with its answers and, if there are any, exact bounds.
    scorer
        The scorer of 0 and 1 that says what a leak is.
    alpha
        Error probability of the two ends together.
    exactly
        Whether the same scorer judges the exact bounds.
    """
    groups = scored(model, "forget", scorer, unjudged(model))
    if not groups:
        return None
    if model.calibration:
        return judged_share_interval(groups, model.calibration, alpha)
    if exactly and model.exact and uses_exact_bounds(model, len(groups[0])):
        trees = model.exact.trees
        known = [(tree.masses, tree.remainder) for tree in trees]
        return mean_leak_interval(known, [tree.lower for tree in trees], alpha, model.exact.rounding)
    return share_interval(groups, alpha)


def uses_exact_bounds(model: Model, n: int) -> bool:
    """Whether a model's exact bounds replace its ``n`` sampled answers per question, by a rule fixed beforehand."""
    if model.exact is None or model.exact.how.note or not all(tree.rho for tree in model.exact.trees):
        return False  # a note: the bounds are of probabilities as one machine computes them
    trees = model.exact.trees
    asked = {prompt for part in answer_parts(model.answers, "forget", ()) for prompt in part["prompt_id"].unique()}
    if {tree.id for tree in trees} != asked - set(unjudged(model)):
        return False
    return exact_is_sharper([tree.masses for tree in trees], trees[0].rho, n, trees[0].alpha)


def replaced(run: Run) -> list[str]:
    """The models whose exact bounds replace their samples in the comparisons of a run."""
    if not run.binary or not judged_exactly(run.params):
        return []
    drawn = {model.name: scored(model, "forget", run.binary, unjudged(model)) for model in run.models}
    return [
        model.name
        for model in run.models
        if drawn[model.name] and not model.calibration and uses_exact_bounds(model, len(drawn[model.name][0]))
    ]
