"""Likelihood measures on answers small enough to work out by hand."""

import math
import zlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import BadInput
from lethe.models.likelihood import AnswerTokens
from lethe.registry import LIKELIHOODS
from lethe.scoring.likelihood import Item, score_likelihoods


def tokens(*log_probs: float, greedy=None, expected=-2.0, spread=1.0) -> AnswerTokens:
    shape = len(log_probs)
    return AnswerTokens(
        np.array(log_probs, dtype=float),
        np.full(shape, expected),
        np.full(shape, spread),
        np.array([True] * shape if greedy is None else greedy, dtype=bool),
    )


def measure(name: str, *args, **kwargs) -> float:
    return LIKELIHOODS[name](Item("the text", *args, **kwargs))


HALF, TENTH, FIFTH = math.log(0.5), math.log(0.1), math.log(0.2)


def test_probability_is_the_geometric_mean():
    assert measure("probability", tokens(HALF, math.log(0.125))) == pytest.approx(0.25)


def test_choice_probability_is_among_the_choices():
    got = measure("choice_probability", tokens(HALF), perturbed=(tokens(TENTH), tokens(FIFTH, FIFTH)))
    assert got == pytest.approx(0.5 / (0.5 + 0.1 + 0.2))
    assert measure("choice_probability", tokens(-2000.0), perturbed=(tokens(-2000.0),)) == pytest.approx(0.5)


def test_truth_ratio_takes_the_paraphrase_where_there_is_one():
    wrong = (tokens(TENTH), tokens(TENTH * 3))
    got = measure("truth_ratio", tokens(HALF), perturbed=wrong)
    assert got == pytest.approx(0.01 / 0.5)
    assert measure("truth_ratio", tokens(HALF), tokens(FIFTH), wrong) == pytest.approx(0.01 / 0.2)
    assert measure("truth_ratio", tokens(-2000.0), perturbed=(tokens(-1.0),)) == math.inf


@pytest.mark.parametrize(
    ("greedy", "strength"),
    [([1, 1, 1, 1], 1), ([0, 1, 1, 1], 0.75), ([1, 0, 1, 1], 0.5), ([1, 1, 1, 0], 0), ([0, 0, 0, 0], 0)],
)
def test_extraction_strength(greedy, strength):
    assert measure("extraction_strength", tokens(*[-1.0] * 4, greedy=greedy)) == strength


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_extraction_strength_equals_trying_every_prefix(greedy):
    shortest = next(k for k in range(len(greedy) + 1) if all(greedy[k:]))
    got = measure("extraction_strength", tokens(*[-1.0] * len(greedy), greedy=greedy))
    assert got == pytest.approx(1 - shortest / len(greedy), abs=1e-15)
    assert got <= measure("exact_memorisation", tokens(*[-1.0] * len(greedy), greedy=greedy)) + 1e-15


def test_exact_memorisation():
    assert measure("exact_memorisation", tokens(*[-1.0] * 4, greedy=[1, 0, 1, 1])) == 0.75


def test_mia_loss_and_zlib():
    assert measure("mia_loss", tokens(-1.0, -3.0)) == -2
    assert measure("mia_zlib", tokens(-1.0, -3.0)) == -2 / len(zlib.compress(b"the text"))
    assert np.isfinite(LIKELIHOODS["mia_zlib"](Item("\ud800\x00", tokens(-1.0))))


def test_min_k_takes_the_lowest_fifth_and_at_least_one():
    assert measure("mia_min_k", tokens(-1.0, -5.0, -2.0)) == -5
    assert measure("mia_min_k", tokens(*-np.arange(1.0, 11.0))) == -9.5


def test_min_k_plus_plus_standardises():
    assert measure("mia_min_k_plus_plus", tokens(-1.0, -8.0, expected=-2.0, spread=3.0)) == -2
    assert measure("mia_min_k_plus_plus", tokens(-1e-9, expected=0.0, spread=0.0)) == 0


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_what_is_missing_is_nan(name):
    assert np.isnan(measure(name, tokens()))
    needs_wrong_answers = name in ("choice_probability", "truth_ratio")
    assert np.isnan(measure(name, tokens(-1.0))) == needs_wrong_answers
    if needs_wrong_answers:
        assert np.isnan(measure(name, tokens(-1.0), perturbed=(tokens(-1.0), tokens())))


def answer(prompt_id, kind, number, *log_probs):
    shape = np.zeros(len(log_probs))
    row = {"prompt_id": prompt_id, "kind": kind, "number": number, "log_probs": np.array(log_probs, float)}
    return {**row, "expected": shape - 1, "spread": shape + 1, "greedy": shape == 0}


def test_a_row_a_prompt_with_every_measure():
    given = pd.DataFrame(
        [
            answer("b", "answer", 0, -1.0),
            answer("b", "perturbed", 1, -4.0),
            answer("b", "perturbed", 0, -2.0),
            answer("b", "paraphrased", 0, -2.0, -2.0),
            answer("a", "answer", 0, -3.0),
        ]
    )
    got = score_likelihoods(given, {"a": {"answer": "A"}, "b": {"answer": "B"}})
    assert list(got["prompt_id"]) == ["b", "a"]
    assert list(got.columns[1:]) == list(LIKELIHOODS)
    assert (got.dtypes.iloc[1:] == np.float64).all()
    np.testing.assert_allclose(got["probability"], np.exp([-1, -3]))
    np.testing.assert_allclose(got["truth_ratio"], [np.exp(2 - 3), np.nan])


def test_a_prompt_the_dataset_lacks_is_refused():
    with pytest.raises(BadInput, match="'a'"):
        score_likelihoods(pd.DataFrame([answer("a", "answer", 0, -1.0)]), {})
