"""What the JSON of a run says of a model's word."""

import json

import pytest

from lethe.report.page import _summary_of
from lethe.verdict.finding import Findings
from tests.lethe.verdict.deciding import decided, drawn, model

KEPT = {"word", "above_chance", "tau", "alpha", "level", "models", "look", "retrains", "graded"}
KEPT |= {"questions", "unjudged", "leaking", "above", "worst", "in_the_way", "decides", "cut"}
KEPT |= {"answers", "limit", "refused"}
NEW = {"anytime", "log_goal", "log_e_forgot", "log_e_leaks", "named", "drawn", "capped"}


@pytest.fixture(scope="module")
def forgetting():
    mine = model("mine", drawn("a", 0, 2000), drawn("b", 400, 2000))
    chance = model("retrain", drawn("a", 0, 1000), drawn("b", 0, 500), role="retrain")
    standing = decided(mine, chance)["mine"]
    return json.loads(json.dumps(_summary_of(standing, mine, Findings())["forgetting"]))


def test_a_word_has_the_keys_of_the_contract(forgetting):
    assert forgetting.keys() >= KEPT | NEW


def test_a_word_has_the_evidence_that_it_rests_on(forgetting):
    assert (forgetting["word"], forgetting["look"], forgetting["anytime"]) == ("leaks", 1, True)
    assert forgetting["named"] == ["b"]
    assert forgetting["log_e_leaks"] > forgetting["log_goal"] > forgetting["log_e_forgot"]


def test_a_word_says_how_many_answers_it_took(forgetting):
    drawn_answers = forgetting["drawn"]

    assert {key: drawn_answers[key] for key in ("least", "most", "total", "retrain_total")} == {
        "least": 2000,
        "most": 2000,
        "total": 4000,
        "retrain_total": 1500,
    }
