"""The rule of draws: its steps on known counts, and the answers that it takes beside the reference simulation."""

import math

import numpy as np
import pytest

from lethe.errors import BadValue
from lethe.statistics import anytime
from lethe.statistics.policy import Policy, Tally

GOAL = math.log(8 / 0.01)


def policy(**settings):
    return Policy(
        **{
            "first": 128,
            "batch": 128,
            "cap": 32_768,
            "tolerance": 0.01,
            "goal": GOAL,
            "retrains": 1,
            **settings,
        }
    )


def no_answers(m):
    return Tally.of(np.zeros(m, dtype=int), 0)


def test_every_question_first_gets_the_first_answers():
    step = policy(first=1000).next(no_answers(3), [no_answers(3)])

    assert step.model.tolist() == [1000] * 3
    assert not step.retrains.any()


def test_a_first_batch_that_was_interrupted_is_completed():
    step = policy(retrains=0).next(Tally.of([0, 5], [128, 100]))

    assert step.model.tolist() == [0, 28]


def test_suspects_are_drawn_alone_and_beside_retrain():
    step = policy().next(Tally.of([0, 3, 2], 256), [Tally.of(0, [0, 128, 0])])

    assert step.model.tolist() == [0, 128, 0]
    assert step.retrains.tolist() == [[0, 256, 0]]


def test_a_question_that_retrain_leaks_as_often_is_no_suspect():
    step = policy().next(Tally.of([0, 30], 256), [Tally.of([0, 30], [0, 256])])

    assert step.model.tolist() == [128, 128]


def test_without_a_suspect_the_open_questions_with_the_fewest_answers_are_drawn():
    step = policy().next(Tally.of([1, 0, 0], [384, 256, 256]), [no_answers(3)])

    assert step.model.tolist() == [0, 128, 128]
    assert not step.retrains.any()


def test_retrain_is_asked_once_a_question_took_longer_than_one_without_a_leak():
    rule = policy()
    soon = rule.without_a_leak - 1

    early = rule.next(Tally.of([3], soon), [no_answers(1)])
    late = rule.next(Tally.of([3], soon + 1), [no_answers(1)])

    assert not early.retrains.any()
    assert late.retrains.tolist() == [[soon + 1 + 128]]


def test_the_largest_retrain_is_chance():
    retrains = [Tally.of([30], 256), Tally.of([0], 256)]

    step = policy(retrains=2).next(Tally.of([30], 256), retrains)

    assert step.retrains.tolist() == [[0], [0]]


def test_no_question_gets_more_than_the_cap():
    step = policy(cap=300, retrains=0).next(Tally.of([0], 256))

    assert step.model.tolist() == [44]


@pytest.mark.parametrize(
    ("leaks", "n", "ended"),
    [
        ([0, 0], 4096, "forgot"),
        ([0, 400], 4096, "leaks"),
        ([0, 41], 4096, "capped"),
        ([0, 0], 128, None),
    ],
)
def test_a_process_ends_with_a_word_or_at_the_cap(leaks, n, ended):
    step = policy(cap=4096, retrains=0).next(Tally.of(leaks, n))

    assert step.ended == ended
    assert step.model.any() == (ended is None)


@pytest.mark.parametrize("retrains", [0, 1, 3])
def test_the_evidence_is_that_of_the_word(retrains):
    chance = np.random.default_rng(3)
    m = 40
    tallies = []
    for _ in range(1 + retrains):
        n = chance.integers(0, 3000, m)
        missing = chance.integers(0, 4, m) * (n > 100)
        leaks = chance.binomial(np.maximum(n - missing, 0), chance.choice([0, 0.01, 0.1], m))
        tallies.append(Tally.of(leaks, n, missing))

    evidence = policy(retrains=retrains).evidence(tallies[0], tallies[1:])

    for place in range(m):
        model, *others = [
            anytime.Counts(int(tally.leaks[place]), int(tally.n[place]), int(tally.missing[place]))
            for tally in tallies
        ]
        forgot = anytime.log_e_forgot(model, others, 0.01)
        leaks = anytime.log_e_leaks(model, others, 0.01)
        assert evidence.log_e_forgot[place] == pytest.approx(forgot, abs=1e-9)
        assert evidence.log_e_leaks[place] == pytest.approx(leaks, abs=1e-9)


def test_the_number_of_retrains_is_checked():
    with pytest.raises(BadValue, match="retrains"):
        policy(retrains=2).next(no_answers(1), [no_answers(1)])


def test_more_leaks_than_answers_are_refused():
    with pytest.raises(BadValue, match="leaks, n, missing"):
        Tally.of([5], 4)
