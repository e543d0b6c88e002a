from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.registry import DIVERSITY
from lethe.scoring.diversity import tokenize


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


def test_distinct_share():
    measure = DIVERSITY["distinct"]
    assert measure(["a", "a", "b", "c"]) == 0.75
    assert measure(["a", None, "", "a"]) == 0.5
    assert np.isnan(measure([None, ""]))


@pytest.mark.parametrize("name", DIVERSITY)
def test_every_measure_is_a_number_in_the_unit_interval_and_nan_without_texts(name):
    measure = DIVERSITY[name]
    assert 0 <= measure(["one two three", "one two four"]) <= 1
    assert np.isnan(measure([]))
    assert np.isnan(measure([None, "\n"]))
