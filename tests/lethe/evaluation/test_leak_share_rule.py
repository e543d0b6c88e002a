"""Exact bounds take the place of samples where they are sharper: by a rule that looks at no outcome."""

from __future__ import annotations

import dataclasses

import pytest

from lethe.evaluation.findings import MORE_THAN_RETRAIN, findings
from lethe.evaluation.leak_share import judged_exactly, replaced, share_that_leaks, uses_exact_bounds
from lethe.evaluation.standing import standings
from lethe.report import certificates
from lethe.statistics.answer_tree import Masses, Remainder, leak_bands, leak_interval
from lethe.statistics.leak_certificates import Certificates, How
from lethe.statistics.leak_share import METHOD
from lethe.statistics.leak_trees import AnswerTree
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import write_run

HOW = How("keyword_leak", 1.0, 0, 1.0, None, 40, "float32", 0.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from lethe import config

    root, models = tmp_path_factory.mktemp("run"), config.read_yaml("params.yaml")["models"]
    write_run(root, 3, 64, models={name: models[name] for name in ("base", "retrain", "npo")})
    return load(root)


def certified(ids, leak, clean, rho, leaks=0, **how):
    """Exact bounds of questions with these exactly known masses and this sample of the rest."""
    masses, rest = Masses((leak,), (clean,)), Remainder(rho, 10_000 if rho else 0, leaks)
    ends = leak_interval(masses, rest, 0.01)
    trees = tuple(
        AnswerTree(
            key, ends.lower, 1.0, ends.upper_certain, ends.upper, ends.lower_sampled, 0.01, leak, clean, 0.0, 0.0, 10,
            0.1, rho, rest.sampled, leaks, 0.0, 1.0, (1.0, 2.0), leak_bands(0.1, 0.2, (1000,)), (), masses,
        )
        for key in ids
    )  # fmt: skip
    return Certificates("model", trees, dataclasses.replace(HOW, **how), 0.01)


def with_exact(run, **exact):
    """The run with exact bounds of some models."""
    models = [dataclasses.replace(model, exact=exact.get(model.name)) for model in run.models]
    return dataclasses.replace(run, models=models)


def method(run, name):
    model = next(model for model in run.models if model.name == name)
    return share_that_leaks(model, "keyword_leak", 0.01, judged_exactly(run.params)).method


SAMPLES = "Clopper-Pearson, pooled"


@pytest.mark.parametrize(
    ("rho", "expected"), [(10.0, SAMPLES), (60.0, SAMPLES), (70.0, METHOD), (1000.0, METHOD), (0.0, SAMPLES)]
)
def test_where_nothing_is_known_the_rate_against_n_decides(run, rho, expected):
    assert run.params.sample.n == 64
    for leaks in (0, 50) if rho else (0,):  # whatever the sample then shows, however wide it makes the interval
        found = with_exact(run, npo=certified(run.forget, 0.0, 0.0, rho, leaks))
        assert method(found, "npo") == expected
        assert replaced(found) == (["npo"] if expected == METHOD else [])


def test_what_is_known_of_the_leak_counts(run):
    """The exactly known part of a leak needs no sample, so a smaller rate is enough."""
    assert method(with_exact(run, npo=certified(run.forget, 0.3, 0.6, 20.0)), "npo") == METHOD


def test_it_needs_the_same_scorer_the_same_questions_and_probabilities_that_hold_elsewhere(run):
    sharp = certified(run.forget, 0.3, 0.6, 1e4)
    assert method(with_exact(run, npo=sharp), "npo") == METHOD
    for other in (None, run.params.exact.model_copy(update={"scorer": "exact_match"})):
        assert not judged_exactly(run.params.model_copy(update={"exact": other}))
    scorers = [{"keyword_leak": {"keyword_match": "substring"}}]
    score = run.params.score.model_copy(update={"scorers": scorers})
    assert not judged_exactly(run.params.model_copy(update={"score": score}))
    sample = run.params.sample.model_copy(update={"language": "flows/languages/wordings.yaml"})
    assert not judged_exactly(run.params.model_copy(update={"sample": sample}))  # the samples are of other prompts
    fewer = certified(list(run.forget)[1:], 0.3, 0.6, 1e4)
    assert method(with_exact(run, npo=fewer), "npo") == SAMPLES
    rounded = certified(run.forget, 0.3, 0.6, 1e4, dtype="bfloat16", note="as computed here")
    assert method(with_exact(run, npo=rounded), "npo") == SAMPLES
    assert not any(uses_exact_bounds(model, 64) for model in run.models)


def test_the_words_and_the_claims_follow_from_it(run):
    """Sampled answers of npo leak often; its exact bounds lie below Retrain's, and they are what counts."""
    quiet, loud = (certified(run.forget, leak, 0.95 - leak, 1e5) for leak in (1e-6, 0.5))
    for npo, retrain, verdict, word in (
        (quiet, loud, "the opposite holds", None),
        (loud, quiet, "holds", "leaks"),
    ):
        found = with_exact(run, npo=npo, retrain=retrain)
        told = findings(found)
        claim = next(claim for claim in told.claims if claim.title == MORE_THAN_RETRAIN)
        (row,) = claim.rows
        assert row.verdict == verdict
        assert "exact bounds" in row.sentence
        standing = next(one for one in standings(found, told) if one.model == "npo")
        assert standing.forgetting.own.method == METHOD
        assert word in (None, standing.forgetting.word)
        assert certificates.section(found).replaced == "retrain and npo"
    assert certificates.section(with_exact(run, npo=certified(run.forget, 0.0, 0.0, 1.0))).replaced == ""
