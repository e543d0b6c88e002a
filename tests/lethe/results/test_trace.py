"""The word on a trace and its rows."""

import dataclasses
import math

import numpy as np
import pytest

from lethe.config.twins import Twins
from lethe.results.table import Numbers
from lethe.results.trace import (
    BESIDE,
    ByScore,
    Control,
    Design,
    Lift,
    OfGroup,
    Trace,
    document,
    no_word_rows,
    record_of,
    refusal_of,
    refusal_of_all,
    refused_rows,
    sentence_of,
    trace_of,
)
from lethe.statistics.twins import twin_test
from lethe.tracking.entries import RunEntry

K = 20
CHANCE = [7, 12, 3, 18, 9, 15, 5, 11, 14, 8] * 3


def trace_with(ranks=CHANCE, **changes):
    names = tuple(f"s{place}" for place in range(len(ranks)))
    return Trace(twin_test(ranks, [K] * len(ranks)), names, 0.01, **changes)


def numbers_of(trace):
    return Numbers([row for row in trace.rows("npo") if row.scope == "model"])


@pytest.mark.parametrize(
    ("ranks", "word"),
    [
        ([1] * 30, "trace"),
        ([K] * 30, "trace"),
        (CHANCE, "no trace found"),
        (CHANCE[:5], "open"),
    ],
)
def test_ranks_decide_the_word(ranks, word):
    assert trace_with(ranks).word == word


def test_a_control_that_rejects_takes_the_word_of_all_models():
    rejecting = Control("retrain", 4e-7, 0.001, "avoided")
    holding = Control("retrain", 0.4, 0.001, "avoided")
    control_rejects = trace_with([1] * 30, controls=(holding, rejecting)).rows("npo")
    stands_out = no_word_rows("npo", "the true candidates stand out by length", of_all=True)

    assert "which cannot know" in refusal_of_all(control_rejects)
    assert refusal_of_all(stands_out) == "The true candidates stand out by length."
    assert "tested no control" in refusal_of_all([])


def test_a_model_without_a_word_leaves_the_words_of_others():
    holding = Control("retrain", 0.4, 0.001, "avoided")
    rows = [*trace_with(controls=(holding,)).rows("npo"), *no_word_rows("served", "no likelihoods")]

    assert refusal_of_all(rows) == ""


def test_a_control_that_rejects_leaves_none():
    control = Control("retrain", 4e-7, 0.001, "avoided")

    trace = trace_with([1] * 30, controls=(control,))

    assert trace.word == "none"
    assert "retrain, which cannot know" in trace.sentence()
    assert "true candidates last" in trace.sentence()


DECLARED = Twins(scores=("min_k", "reference"))
CLEAN = ByScore("min_k", 0.4, math.log(0.4), "avoided")


def test_declared_scores_share_the_level_of_the_word():
    trace = trace_with(settings=DECLARED, models=2)

    assert trace.level == pytest.approx(0.01 / 2 / 3)


def test_a_declared_score_alone_gives_the_word_and_is_named():
    found = ByScore("reference", 0.001, math.log(0.001), "preferred")

    trace = trace_with(settings=DECLARED, by_scores=(CLEAN, found))

    assert trace.word == "trace"
    assert "the declared score reference" in trace.sentence()


def test_a_score_above_its_part_of_the_level_gives_no_word():
    above = ByScore("reference", 0.005, math.log(0.005), "preferred")

    trace = trace_with(settings=DECLARED, by_scores=(CLEAN, above))

    assert trace.word == "no trace found"
    assert "one found by min_k, reference" in trace.sentence()


def test_models_without_knowledge_have_a_false_trace_by_some_score_at_most_at_alpha():
    rng = np.random.default_rng(6)
    false = 0
    for _ in range(200):
        base = rng.normal(size=(8, K))
        tests = []
        for _score in range(3):  # scores of one model depend on each other
            ranks = 1 + np.argsort(np.argsort(-base - rng.normal(size=(8, K)), axis=1), axis=1)
            tests.append(twin_test(ranks[:, 0].tolist(), [K] * 8))
        further = tuple(ByScore("min_k", test.p, test.log_p, "either") for test in tests[1:])
        names = tuple(map(str, range(8)))
        trace = Trace(tests[0], names, 0.1, settings=DECLARED, by_scores=further)
        false += trace.word == "trace"

    assert false / 200 <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / 200)


def test_rows_hold_everything_that_is_said():
    trace = trace_with(
        [1] * 10 + CHANCE[:20],
        models=8,
        controls=(Control("retrain", 0.5, 0.001, "either"),),
        lift=Lift(4.5, 6.7),
        authors=(OfGroup("Ada", 0.001, 0.002), OfGroup("Bo", 0.5, 0.5)),
        design=Design("drawn", "nothing else", "c" * 64),
        by_scores=(CLEAN,),
    )

    again = trace_of(numbers_of(trace))

    for field in dataclasses.fields(Trace):
        if field.name != "test":
            assert getattr(again, field.name) == getattr(trace, field.name)
    assert again.test.ranks == trace.test.ranks
    assert again.sentence("npo") == trace.sentence("npo")


def test_the_json_has_the_keys_that_are_promised():
    promised = (
        "word direction p p_way e alpha look secrets candidates ranks ranked_first ranked_last epsilon_lower "
        "smallest_known smallest_lift authors control design assumes commitment"
    )
    record = record_of(numbers_of(trace_with([1] * 30, lift=Lift(4.5, 6.7))), "npo")

    assert set(promised.split()) <= record.keys()
    assert record["p_way"].keys() == {"preferred", "avoided", "either"}
    assert record["smallest_lift"] == {"up": 4.5, "down": 6.7}


def test_a_model_that_was_not_tested_says_why():
    assert refusal_of(Numbers(refused_rows("npo", "no likelihoods"))) == "no likelihoods"

    numbers = Numbers(no_word_rows("npo", "no likelihoods"))

    assert sentence_of(numbers, "npo") == "npo: no word on a trace: no likelihoods."
    assert document(numbers.rows) == {"word": "none", "refused": ["no likelihoods"]}


def test_without_draws_nothing_is_said():
    assert record_of(Numbers([]), "npo") == {}
    assert sentence_of(Numbers([]), "npo") == ""


def test_forgot_beside_a_trace_has_a_meaning():
    assert "a list of candidates" in BESIDE["forgot", "trace"]


def test_mlflow_shows_p_e_as_a_power_of_ten_and_the_share_that_ranks_first():
    trace = trace_with([1] * 30)

    entry = RunEntry("model", "npo", "", {}, {}, tuple(trace.rows("npo")), [], [])

    logged = entry.metrics
    assert logged["trace_p"] == trace.test.p
    assert logged["trace_log10_e"] == pytest.approx(trace.test.log_e / math.log(10))
    assert logged["ranked_first"] == 1
