"""A comparison's estimate lies within its own interval, whatever the sizes, the dependence and what is missing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.statistics.mean_difference import (
    PAIRED,
    difference,
    mean_of_differences,
    population_difference,
)

SLACK = 1e-9  # bisection and rounding


def within(effect):
    return effect.low - SLACK <= effect.difference <= effect.high + SLACK


@st.composite
def sides(draw, questions):
    """Scores of some questions on two sides, drawn from a seed; some are missing."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    binary, apart = draw(st.booleans()), draw(st.booleans())
    sizes = draw(st.tuples(st.integers(2, 60), st.integers(2, 60)))
    missing = draw(st.sampled_from([0, 0.2]))
    both = []
    for size in sizes:
        means = random.random(questions)
        drawn = random.random((questions, size))
        scores = (drawn < means[:, None]).astype(float) if binary else drawn * means[:, None]
        scores[random.random(scores.shape) < missing] = np.nan
        both.append(list(scores))
    return both[0], both[1], binary, "apart" if apart else "any"


@given(case=sides(1), pairs=st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_estimate_of_one_question_is_within_its_interval(case, pairs):
    a, b, binary, draws = case

    effect = difference(a[0], b[0], 0.05, binary, draws="pairs" if pairs else draws)

    assert np.isnan(effect.difference) or within(effect)


@given(case=sides(4), pairs=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_estimate_of_an_average_is_within_its_interval(case, pairs):
    a, b, binary, draws = case

    of_these = mean_of_differences(a, b, 0.05, binary, draws="pairs" if pairs else draws)
    of_such = population_difference(a, b, 0.05, binary)

    assert of_these is None or within(of_these)
    assert within(of_such)


@pytest.mark.parametrize("longer", ["a", "b"])
def test_pairs_of_unequal_numbers_are_estimated_on_the_pairs(longer):
    short, long = np.tile([0.0, 1.0], 50), np.repeat([1.0, 0.0], [100, 900])
    a, b = (long, short) if longer == "a" else (short, long)

    effect = difference(a, b, 0.05, binary=True, draws="pairs")

    assert effect.method == PAIRED
    assert {effect.a, effect.b} == {0.5, 1.0}
    assert within(effect)
