"""Diversity: counts, and self-BLEU against NLTK's sentence_bleu, each sample against all others."""

import warnings
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from lethe.registry import DIVERSITY
from lethe.scoring.diversity import Tokens, _each, tokenize
from tests.growth import growth

self_bleu = DIVERSITY["self_bleu"]


def naive(texts: list[str]) -> list[float]:
    tokens = [tokenize(text) for text in texts]
    smooth = SmoothingFunction().method1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            float(sentence_bleu(tokens[:i] + tokens[i + 1 :], tokens[i], smoothing_function=smooth))
            for i in range(len(tokens))
        ]


words = st.sampled_from(["a", "the", "cat", "sat", ".", "Born"])
texts = st.lists(words, min_size=1, max_size=9).map(" ".join)


@settings(max_examples=200)
@given(st.lists(texts, min_size=2, max_size=8))
@example(["a", "a"])
@example(["a", "the cat sat"])
@example(["a a a a a", "a a", "a a a a a"])
@example(["the cat", "the cat sat .", "the cat sat"])
def test_equals_nltk(samples):
    expected = naive(samples)
    tokens = Tokens.of(samples)
    by_text = dict(zip(dict.fromkeys(tuple(tokenize(text)) for text in samples), _each(tokens), strict=True))
    got = [by_text[tuple(tokenize(text))] for text in samples]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
    assert self_bleu(samples) == pytest.approx(np.mean(expected), abs=1e-12)


@pytest.mark.parametrize("part", ["a", "a b ", "\x00", "<b>"])
def test_lines_of_100_000_characters_do_not_stall(part):
    def judge(size):
        line = part * (size // len(part))
        assert self_bleu([line, line, "a b c d e"]) <= 1

    assert growth(judge, 12_500) < 32  # of 8 times the length; 64 where the time is quadratic


@given(st.lists(st.text("ab .", max_size=12), min_size=1, max_size=6), st.sampled_from([1, 2]))
def test_distinct_n_equals_counting(texts, n):
    grams = Counter()
    for text in texts:
        tokens = tokenize(text)
        grams.update(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
    got = DIVERSITY[f"distinct_{n}"](texts)
    if grams:
        assert got == pytest.approx(len(grams) / grams.total(), abs=1e-15)
    else:
        assert np.isnan(got)


@pytest.mark.parametrize("name", DIVERSITY)
def test_every_measure_is_a_number_in_the_unit_interval_and_nan_without_texts(name):
    measure = DIVERSITY[name]
    assert 0 <= measure(["one two three", "one two four"]) <= 1
    assert np.isnan(measure([]))
    assert np.isnan(measure([None, "\n"]))
