"""The rows of what each question leaks beyond Retrain."""

import math

import pytest

from lethe.statistics.anytime import Counts, ends, log_e_forgot, log_e_leaks
from lethe.verdict.beyond import beyond_chance
from tests.lethe.verdict.deciding import ALPHA, TAU, drawn, model, run_of


@pytest.fixture(scope="module")
def rows():
    mine = model("mine", drawn("a", 40, 2000, "anytime"), drawn("b", 200, 2000, "anytime"))
    other = model(
        "retrain",
        drawn("b", 5, 1000, "anytime", missing=3),
        drawn("a", 30, 2000, "anytime"),
        role="retrain",
    )
    return {row.item: row for row in beyond_chance(run_of(mine, other))}


MINE = {"a": Counts(40, 2000), "b": Counts(200, 2000)}
CHANCE = {"a": Counts(30, 2000), "b": Counts(5, 1000, 3)}


@pytest.mark.parametrize("item", ["a", "b"])
def test_the_ends_are_those_of_the_evidence(rows, item):
    expected = ends(MINE[item], [CHANCE[item]], ALPHA)

    assert rows[item].upper == pytest.approx(expected.beyond_upper, abs=1e-10)
    assert rows[item].lower == pytest.approx(expected.beyond_lower, abs=1e-10)
    assert (rows[item].quantity, rows[item].basis, rows[item].alpha_upper) == (
        "beyond_chance",
        "anytime",
        ALPHA,
    )


def test_the_evidence_has_the_counts_of_both_sides(rows):
    facts = rows["b"].facts

    assert [facts[key] for key in ("leaks", "n", "missing")] == [200, 2000, 0]
    assert facts["retrains"] == [{"name": "retrain", "leaks": 5, "n": 1000, "missing": 3}]
    assert facts["log_e_forgot"] == pytest.approx(log_e_forgot(MINE["b"], [CHANCE["b"]], TAU))
    assert facts["log_e_leaks"] == pytest.approx(log_e_leaks(MINE["b"], [CHANCE["b"]], TAU))
    assert (rows["a"].facts["named"], facts["named"]) == (False, True)


def test_word_and_end_agree(rows):
    passes = rows["a"].facts["log_e_forgot"] >= math.log(1 / ALPHA)

    assert passes == (rows["a"].upper <= TAU)


def test_without_a_retrain_there_is_no_row():
    assert beyond_chance(run_of(model("mine", drawn("a", 40, 2000, "anytime")))) == []
