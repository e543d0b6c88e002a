"""What the word costs in simulated runs, beside the numbers of a reference simulation with other seeds."""

import math

import numpy as np
import pytest

from lethe.errors import BadValue
from lethe.statistics.policy import Policy
from lethe.statistics.policy_costs import told_case, typical_cases, word_costs

# Eight models, alpha .01, tolerance .01, first 128: answers per question of both, 90% of runs, Retrain's part.
OF_THE_REFERENCE = [(1067, 1170, 74), (1413, 1580, 258), (772, 1170, 315), (197, 228, 32)]


def policy(first=128, cap=32_768, tolerance=0.01, retrains=1):
    goal = math.log(8 / 0.01)
    return Policy(first, 128, cap, tolerance=tolerance, goal=goal, retrains=retrains)


@pytest.mark.parametrize(("place", "numbers"), list(enumerate(OF_THE_REFERENCE)))
def test_a_word_takes_the_answers_of_the_reference(place, numbers):
    answers, answers_90, of_retrain = numbers

    costs = word_costs(policy(), typical_cases(30, 0.01)[place])

    assert costs.words[costs.wanted] == 1
    assert costs.answers == pytest.approx(answers, rel=0.06)
    assert costs.answers_90 == pytest.approx(answers_90, rel=0.1)
    assert costs.retrain_answers == pytest.approx(of_retrain, rel=0.2)


def test_at_a_high_chance_half_of_the_answers_are_retrains():
    case = told_case(30, 0.05, leak=0.45, chance=0.3, beside_retrain=True)

    costs = word_costs(policy(tolerance=0.05), case, runs=40)

    assert costs.words["leaks"] == 1
    assert costs.answers == pytest.approx(681, rel=0.08)
    assert costs.retrain_answers == pytest.approx(costs.answers / 2, rel=0.02)


def test_the_answers_until_a_word_are_those_of_the_runs_that_got_it():
    """Of two leaking questions, the runs that stay open took all that they may."""
    several = typical_cases(2, 0.05)[2]
    rule = policy(cap=512, tolerance=0.05)

    costs = word_costs(rule, several, runs=200)

    assert 0.1 < costs.words["leaks"] < 0.9
    assert sum(costs.by_question) / 2 < costs.answers


def test_a_guess_near_the_tolerance_stays_open_at_the_cap_without_a_retrain():
    guessed = typical_cases(30, 0.01)[1]

    costs = word_costs(policy(cap=4096, retrains=0), guessed, runs=40)

    assert costs.words["open"] > 0.9
    assert costs.retrain_answers == 0


@pytest.mark.parametrize(("leak", "wanted"), [(0.35, "forgot"), (0.36, "leaks")])
def test_the_true_word_is_about_what_a_question_leaks_beyond_retrain(leak, wanted):
    assert told_case(3, 0.055, leak, 0.3, beside_retrain=True).wanted == wanted
    assert told_case(3, 0.055, leak, 0.3, beside_retrain=False).wanted == "leaks"


def test_a_process_gives_the_true_word_to_a_model_at_the_edge():
    """A question just above the tolerance is called forgot with at most the level, whatever is drawn next."""
    at_the_edge = told_case(5, 0.01, leak=0.0102, chance=0.0, beside_retrain=True)
    goal = math.log(1 / 0.05)
    rule = Policy(128, 128, 8192, tolerance=0.01, goal=goal, retrains=1)

    costs = word_costs(rule, at_the_edge, runs=400)

    assert costs.words["forgot"] <= 0.05


def test_probabilities_are_checked():
    with pytest.raises(BadValue, match="leak"):
        told_case(3, 0.01, leak=1.2, chance=0.0, beside_retrain=False)
    with pytest.raises(BadValue, match="retrains"):
        word_costs(policy(retrains=2), typical_cases(3, 0.01)[0])


def test_fewer_questions_than_a_case_wants_all_leak():
    (_, _, several, _) = typical_cases(2, 0.01)

    assert np.array_equal(several.subject, [0.02, 0.02])
