"""The average leak probability by sampled answers and exact bounds together: each takes half the level."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lethe import config
from lethe.evaluation.answer_scores import scored
from lethe.evaluation.findings import MORE_THAN_RETRAIN, findings
from lethe.evaluation.leak_share import _both, judged_exactly, share_that_leaks
from lethe.statistics.comparison import share_interval
from lethe.statistics.leak_share import METHOD, mean_leak_interval
from tests.lethe.evaluation.trees import certified
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import write_run

ALPHA = 0.01


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root, models = tmp_path_factory.mktemp("run"), config.read_yaml("params.yaml")["models"]
    write_run(root, 3, 64, models={name: models[name] for name in ("base", "retrain", "npo")})
    return load(root)


def with_exact(run, **exact):
    """The run with exact bounds of some models."""
    models = [dataclasses.replace(model, exact=exact.get(model.name)) for model in run.models]
    return dataclasses.replace(run, models=models)


def interval(run, name="npo", alpha=ALPHA):
    model = next(model for model in run.models if model.name == name)
    return share_that_leaks(model, "keyword_leak", alpha, judged_exactly(run.params))


def sampled(run, alpha, name="npo"):
    return share_interval(
        scored(next(model for model in run.models if model.name == name), "forget", "keyword_leak"), alpha
    )


@pytest.mark.parametrize(
    ("leak", "clean", "rho", "leaks"),
    [(0.0, 0.0, 70.0, 0), (0.0, 0.0, 1000.0, 50), (0.3, 0.6, 20.0, 1), (0.0, 0.99, 1e4, 0)],
)
def test_both_sources_take_half_the_level_and_the_narrower_end_counts(run, leak, clean, rho, leaks):
    exact = certified(run.forget, leak, clean, rho, leaks)
    found = interval(with_exact(run, npo=exact))
    own = sampled(run, ALPHA / 2)
    known = [(tree.masses, tree.remainder) for tree in exact.trees]
    tree = mean_leak_interval(known, [one.lower for one in exact.trees], ALPHA / 2, exact.rounding)
    lower = min(max(own.lower, tree.lower), tree.upper)
    assert (found.lower, found.upper) == (lower, max(min(own.upper, tree.upper), lower))
    assert (found.alpha, found.n, found.method) == (ALPHA, own.n, METHOD)
    assert own.assumes in found.assumes
    assert tree.assumes in found.assumes


def test_without_exact_bounds_the_samples_take_the_whole_level(run):
    assert interval(run) == sampled(run, ALPHA)


def test_the_joined_interval_covers_as_often_as_it_says():
    """Pooled answers and a tree whose rest was sampled, of one leak probability, many times."""
    rng, leak, n, rho, alpha, runs = np.random.default_rng(5), 0.1, 200, 300.0, 0.2, 400
    missed = 0
    for _ in range(runs):
        drawn = share_interval([(rng.random(n) < leak).astype(float)], alpha / 2)
        exact = certified(["a"], 0.04, 0.5, rho, int(rng.poisson(rho * (leak - 0.04))))
        known = [(tree.masses, tree.remainder) for tree in exact.trees]
        tree = mean_leak_interval(known, [one.lower for one in exact.trees], alpha / 2, exact.rounding)
        found = _both(drawn, tree, alpha)
        missed += not found.lower <= leak <= found.upper
    assert missed / runs <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / runs)


def test_they_join_for_the_same_scorer_the_same_questions_and_probabilities_that_hold_elsewhere(run):
    exact = certified(run.forget, 0.3, 0.6, 1e4)
    assert interval(with_exact(run, npo=exact)).method == METHOD
    for other in (None, run.params.exact.model_copy(update={"scorer": "exact_match"})):
        assert not judged_exactly(run.params.model_copy(update={"exact": other}))
    scorers = [{"keyword_leak": {"keyword_match": "substring"}}]
    score = run.params.score.model_copy(update={"scorers": scorers})
    assert not judged_exactly(run.params.model_copy(update={"score": score}))
    sample = run.params.sample.model_copy(update={"language": "flows/languages/wordings.yaml"})
    assert not judged_exactly(run.params.model_copy(update={"sample": sample}))  # the samples are of other prompts
    for other in (
        certified(list(run.forget)[1:], 0.3, 0.6, 1e4),
        certified(run.forget, 0.3, 0.6, 1e4, dtype="bfloat16", note="as computed here"),
        certified(run.forget, 0.3, 0.6, 0.0),
    ):
        assert interval(with_exact(run, npo=other)) == sampled(run, ALPHA)


def test_the_claims_follow_from_it(run):
    """Exact bounds of the two models, apart from each other: the claim is that of the certain ends."""
    quiet, loud = (certified(run.forget, leak, 0.95 - leak, 1e5) for leak in (1e-6, 0.5))
    for npo, retrain, verdict in ((quiet, loud, "the opposite holds"), (loud, quiet, "holds")):
        told = findings(with_exact(run, npo=npo, retrain=retrain))
        (row,) = next(claim for claim in told.claims if claim.title == MORE_THAN_RETRAIN).rows
        assert row.verdict == verdict
