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
from tests.cases import cases


def tokens(numbers, greedy=None, expected=-2.0, spread=1.0) -> AnswerTokens:
    """An answer of tokens with these probabilities, or with their logarithms, which are not positive."""
    log_probs = np.array([math.log(one) if one > 0 else one for one in numbers], dtype=float)
    ones = np.ones(len(log_probs))
    return AnswerTokens(
        log_probs, expected * ones, spread * ones, np.array(ones if greedy is None else greedy, bool)
    )


def measure(name: str, *args, **kwargs) -> float:
    return LIKELIHOODS[name](Item("the text", *args, **kwargs))


@cases
def test_a_measure_by_hand(name, answer, paraphrased, perturbed, value):
    others = {"paraphrased": paraphrased and tokens(paraphrased), "perturbed": tuple(map(tokens, perturbed or ()))}
    assert measure(name, tokens(**answer), **others) == pytest.approx(value)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_extraction_strength_equals_trying_every_prefix(greedy):
    shortest, own = (
        next(k for k in range(len(greedy) + 1) if all(greedy[k:])),
        tokens([-1.0] * len(greedy), greedy),
    )
    strength = measure("extraction_strength", own)
    assert strength == pytest.approx(1 - shortest / len(greedy), abs=1e-15)
    assert strength <= measure("exact_memorisation", own) + 1e-15


def test_mia_zlib():
    assert measure("mia_zlib", tokens([-1.0, -3.0])) == -2 / len(zlib.compress(b"the text"))
    assert np.isfinite(LIKELIHOODS["mia_zlib"](Item("\ud800\x00", tokens([-1.0]))))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_what_is_missing_is_nan(name):
    assert np.isnan(measure(name, tokens([])))
    needs_wrong_answers = name in ("choice_probability", "truth_ratio")
    assert np.isnan(measure(name, tokens([-1.0]))) == needs_wrong_answers
    if needs_wrong_answers:
        assert np.isnan(measure(name, tokens([-1.0]), perturbed=(tokens([-1.0]), tokens([]))))


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
