"""The average leak probability: exact bounds and sampled answers at half the level each, where both are of one event."""

import dataclasses

import pytest

from lethe import config
from lethe.evaluation.answers import scored
from lethe.evaluation.findings import METHOD, _both, judged_exactly, mean_leak_interval, share_that_leaks
from lethe.statistics.bound import Interval
from lethe.statistics.many_prompts import share_interval
from tests.lethe.evaluation.trees import certified
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import write_run
from tests.small import ROOT

ALPHA = 0.01
SAMPLES = "Clopper-Pearson, pooled"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root, models = tmp_path_factory.mktemp("run"), config.read_yaml(ROOT / "params.yaml")["models"]
    write_run(root, 3, 64, models={name: models[name] for name in ("base", "retrain", "npo")})
    return load(root)


def with_exact(run, **exact):
    """The run with exact bounds of some models."""
    models = [dataclasses.replace(model, exact=exact.get(model.name)) for model in run.models]
    return dataclasses.replace(run, models=models)


def interval(run, name="npo", alpha=ALPHA):
    model = next(model for model in run.models if model.name == name)
    return share_that_leaks(model, "keyword_leak", alpha, judged_exactly(run.params))


@pytest.mark.parametrize("rho", [10.0, 1000.0])
@pytest.mark.parametrize("leaks", [0, 3])
def test_each_source_takes_half_the_level_whatever_came_out(run, rho, leaks):
    found = certified(run.forget, 0.03, 0.9, rho, leaks)
    joined = with_exact(run, npo=found)
    model = next(model for model in joined.models if model.name == "npo")
    sampled = share_interval(scored(model, "forget", "keyword_leak"), ALPHA / 2)
    exact = mean_leak_interval(
        [(tree.masses, tree.remainder) for tree in found.trees], [tree.lower for tree in found.trees], ALPHA / 2
    )
    own = interval(joined)
    assert (own.lower, own.upper) == (max(sampled.lower, exact.lower), min(sampled.upper, exact.upper))
    assert (own.alpha, own.method) == (ALPHA, METHOD)
    assert {bound.alpha for bound in own.bounds()} == {ALPHA / 2}
    assert sampled.assumes in own.assumes
    assert exact.assumes in own.assumes


def test_ends_that_exclude_each_other_give_an_interval():
    def of(lower, upper):
        return Interval((lower + upper) / 2, lower, upper, 100, ALPHA / 2, "made up")

    for first, second in (((0.1, 0.2), (0.3, 0.4)), ((0.3, 0.4), (0.1, 0.2)), ((0.1, 0.4), (0.2, 0.3))):
        found = _both(of(*first), of(*second), ALPHA)
        assert second[0] <= found.lower <= found.upper <= second[1]


def test_it_needs_the_same_scorer_the_same_questions_and_probabilities_that_hold_elsewhere(run):
    sharp = certified(run.forget, 0.3, 0.6, 1e4)
    alone = interval(run)
    assert alone.method == SAMPLES
    assert interval(with_exact(run, npo=sharp)).method == METHOD
    for other in (None, run.params.exact.model_copy(update={"scorer": "exact_match"})):
        assert not judged_exactly(run.params.model_copy(update={"exact": other}))
    scorers = [{"keyword_leak": {"keyword_match": "substring"}}]
    score = run.params.score.model_copy(update={"scorers": scorers})
    assert not judged_exactly(run.params.model_copy(update={"score": score}))
    sample = run.params.sample.model_copy(update={"language": "flows/languages/wordings.yaml"})
    assert not judged_exactly(run.params.model_copy(update={"sample": sample}))  # the samples are of other prompts
    fewer = certified(list(run.forget)[1:], 0.3, 0.6, 1e4)
    rounded = certified(run.forget, 0.3, 0.6, 1e4, dtype="bfloat16", note="as computed here")
    unsampled = certified(run.forget, 0.3, 0.6, 0.0)
    for found in (fewer, rounded, unsampled):
        assert interval(with_exact(run, npo=found)) == alone  # at the whole level
