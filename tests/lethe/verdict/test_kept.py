"""Words once given stay: the largest evidence at the looks of the rule of draws; trees of another version join nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lethe.results.ends import Ends
from lethe.statistics.leak_trees import Version
from lethe.verdict.compared import Kept
from lethe.verdict.rules import decide
from tests.lethe.verdict.deciding import TAU, decided, drawn, exact, model

ITEMS = ("q1", "q2")
GOAL = math.log(1 / 0.01)
BEFORE = GOAL + 0.1  # what a look had reached
NOTHING = np.array([-9.0, -9.0])
UNNAMED = np.zeros(2, dtype=bool)


def word_of(kept, leaks=(3, 3)):
    """The word on two questions whose last counts decide nothing."""
    return decide(Ends.of_arrays(ITEMS, leaks, 300), alpha=0.01, tau=0.01, kept=kept)


def test_a_question_that_had_passed_stays_passed():
    once = Kept(np.array([BEFORE, BEFORE]), -math.inf, UNNAMED, GOAL)
    one_only = Kept(np.array([BEFORE, -9.0]), -math.inf, UNNAMED, GOAL)

    assert word_of(None).word == "open"
    assert word_of(once).word == "forgot"
    assert word_of(one_only).word == "open"


def test_leaks_that_the_mean_had_proved_stay_proved():
    assert word_of(Kept(NOTHING, BEFORE, UNNAMED, GOAL)).word == "leaks"
    assert word_of(Kept(NOTHING, GOAL - 0.1, UNNAMED, GOAL)).word == "open"


def test_a_name_once_given_stays_unless_the_level_became_smaller():
    named = np.array([False, True])
    at_larger_level = Kept(NOTHING, -math.inf, named, GOAL - 1)

    assert word_of(Kept(NOTHING, -math.inf, named, GOAL)).named == ("q2",)
    assert word_of(at_larger_level).named == ()


def reached(item, log_e=99.0, tolerance=TAU, **more):
    """A question with two leaks in 300 answers, whose evidence once was larger."""
    entry = {"tolerance": tolerance, "goal": 9.0, "log_e_forgot": log_e, "named_at": None}
    return drawn(item, 2, 300, "anytime", reached=entry | {"log_e_leaks_mean": -9.0} | more)


def forgetting(*parts):
    return decided(model("m", *parts))["m"].word


def test_the_words_of_a_run_keep_what_the_rule_of_its_draws_had_proved():
    assert forgetting(drawn("q1", 2, 300, "anytime")) == "open"
    assert forgetting(reached("q1")) == "forgot"
    assert forgetting(reached("q1", -9.0, log_e_leaks_mean=99.0)) == "leaks"


def test_evidence_at_another_tolerance_or_of_a_part_of_the_questions_is_not_kept():
    assert forgetting(reached("q1", tolerance=TAU / 2)) == "open"
    assert forgetting(reached("q1"), drawn("q2", 0, 8000, "anytime")) == "open"


@pytest.mark.parametrize(("weights", "word"), [("same", "forgot"), ("other", "open")])
def test_a_tree_of_other_weights_joins_no_draws(weights, word):
    made = model("m", drawn("q1", 0, 60), exact("q1", leak=0.0, clean=0.995))
    drawing = replace(made.drawing, model="same")
    made = replace(made, drawing=drawing, exact=replace(made.exact, of=Version(weights)))

    found = decided(made)["m"]

    assert found.word == word
    assert ("other weights" in found.sentence) == (weights == "other")
