"""The share that leaks from samples and exact bounds together: each keeps its part of the level."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe import config
from lethe.measure.answers import scored
from lethe.statistics.answer_tree import Masses, Remainder, Rounding
from lethe.statistics.bound import Interval
from lethe.statistics.many_prompts import share_interval
from lethe.verdict.claims import (
    METHOD,
    _both,
    judged_exactly,
    mean_leak_interval,
    share_that_leaks,
)
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import write_run
from tests.lethe.verdict.deciding import certified
from tests.small import ROOT

ALPHA = 0.01


SAMPLES = "Clopper-Pearson, pooled"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    models = config.read_yaml(ROOT / "params.yaml")["models"]
    write_run(root, 3, 64, models={name: models[name] for name in ("base", "retrain", "npo")})
    return load(root)


def with_exact(run, **exact):
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
    sampled = share_interval(scored(model.answers, "forget", "keyword_leak"), ALPHA / 2)
    exact = mean_leak_interval(
        [(tree.masses, tree.remainder) for tree in found.trees],
        [tree.lower for tree in found.trees],
        ALPHA / 2,
    )
    ends = interval(joined)
    assert (ends.lower, ends.upper) == (
        max(sampled.lower, exact.lower),
        min(sampled.upper, exact.upper),
    )
    assert (ends.alpha, ends.method) == (ALPHA, METHOD)
    assert {bound.alpha for bound in ends.bounds()} == {ALPHA / 2}
    assert sampled.assumes in ends.assumes
    assert exact.assumes in ends.assumes


def test_ends_that_exclude_each_other_give_an_interval():
    def of(lower, upper):
        return Interval((lower + upper) / 2, lower, upper, 100, ALPHA / 2, "made up")

    for first, second in (
        ((0.1, 0.2), (0.3, 0.4)),
        ((0.3, 0.4), (0.1, 0.2)),
        ((0.1, 0.4), (0.2, 0.3)),
    ):
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
    assert not judged_exactly(
        run.params.model_copy(update={"sample": sample})
    )  # the samples are of other prompts
    fewer = certified(list(run.forget)[1:], 0.3, 0.6, 1e4)
    rounded = certified(run.forget, 0.3, 0.6, 1e4, dtype="bfloat16", note="as computed here")
    unsampled = certified(run.forget, 0.3, 0.6, 0.0)
    for found in (fewer, rounded, unsampled):
        assert interval(with_exact(run, npo=found)) == alone  # at the whole level


@given(
    leak=st.floats(0, 0.4),
    clean=st.floats(0, 0.6),
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    rho=st.floats(1, 1e6),
    allowance=st.sampled_from([0.0, 1e-5, 1e-2]),
)
@settings(max_examples=100)
def test_the_interval_is_one_and_holds_the_certain_ends(leak, clean, counts, rho, allowance):
    masses = Masses((leak,), (clean,))
    rounding = Rounding(allowance, 1)
    questions = [(masses, Remainder(rho, 1000, count)) for count in counts]
    got = mean_leak_interval(questions, [leak * 0.9] * len(counts), 0.01, rounding)
    assert 0 <= got.lower <= got.value <= got.upper <= 1 + 1e-9
    assert got.lower >= leak * 0.9 * (1 - 1e-12)
    assert got.n == 1000 * len(counts)
    lower, upper = got.bounds()
    assert (lower.alpha, upper.alpha) == (0.005, 0.005)
