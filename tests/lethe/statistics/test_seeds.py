"""Means and differences over seeds: intervals against their definition and by coverage, tests against every permutation."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lethe.errors import BadInput
from lethe.statistics.seeds import (
    difference_of_seeds,
    least_p_value,
    mean_of_seeds,
    seeds_needed,
)

# Multiples of 1/64 add up exactly, so that equal statistics are equal.
exact = st.integers(-64, 64).map(lambda number: number / 64)


def naive_permutations(a, b):
    """Every way of giving the values to the two methods."""
    values = [*a, *b]
    seen = np.mean(b) - np.mean(a)
    low = 0
    high = 0
    count = 0
    for chosen in combinations(range(len(values)), len(a)):
        first = [values[place] for place in chosen]
        second = [values[place] for place in range(len(values)) if place not in chosen]
        difference = np.mean(second) - np.mean(first)
        low += difference <= seen + 1e-12
        high += difference >= seen - 1e-12
        count += 1
    return min(1.0, 2 * min(low, high) / count)


def naive_signs(differences):
    """Every choice of signs of the differences."""
    seen = np.mean(differences)
    low = 0
    high = 0
    count = 0
    for signs in product((1, -1), repeat=len(differences)):
        mean = np.mean(np.multiply(signs, differences))
        low += mean <= seen + 1e-12
        high += mean >= seen - 1e-12
        count += 1
    return min(1.0, 2 * min(low, high) / count)


@settings(max_examples=30)
@given(st.lists(exact, min_size=2, max_size=4), st.lists(exact, min_size=2, max_size=4))
def test_the_p_value_is_that_of_every_permutation(a, b):
    assert difference_of_seeds(a, b).p_value == pytest.approx(naive_permutations(a, b))


@settings(max_examples=30)
@given(st.lists(st.tuples(exact, exact), min_size=2, max_size=5))
def test_the_p_value_of_pairs_is_that_of_every_sign(pairs):
    a, b = zip(*pairs, strict=True)

    found = difference_of_seeds(a, b, paired=True)

    assert found.p_value == pytest.approx(naive_signs(np.subtract(b, a)))


def test_the_intervals_are_those_of_scipy():
    a, b = [0.1, 0.4, 0.2, 0.7], [0.3, 0.9, 0.35]

    mean = mean_of_seeds(a, alpha=0.1)
    apart = difference_of_seeds(a, b, alpha=0.1)
    pairs = difference_of_seeds(a[:3], b, paired=True, alpha=0.1)

    students = stats.ttest_1samp(a, 0).confidence_interval(0.9)
    welchs = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.9)
    of_pairs = stats.ttest_rel(b, a[:3]).confidence_interval(0.9)
    for found, expected in ((mean, students), (apart, welchs), (pairs, of_pairs)):
        assert (found.lower.value, found.upper.value) == pytest.approx(
            (expected.low, expected.high)
        )
        assert found.lower.alpha == pytest.approx(0.05)


def test_an_interval_of_a_probability_is_cut_at_its_range():
    found = mean_of_seeds([0.0, 0.5, 0.1], within=(0, 1))

    assert (found.lower.value, found.upper.value) == (0, pytest.approx(0.857, abs=1e-3))


@pytest.mark.parametrize("values", [[0.3], [0.3, 0.3, 0.3]])
def test_what_says_nothing_of_other_seeds_has_no_interval(values):
    found = mean_of_seeds(values)

    assert found.mean == pytest.approx(0.3)
    assert (found.lower, found.upper) == (None, None)


def test_equal_values_of_both_methods_have_a_test_and_no_interval():
    found = difference_of_seeds([0.0] * 4, [1.0] * 4)

    assert (found.lower, found.upper) == (None, None)
    assert found.p_value == pytest.approx(least_p_value(4, 4))


@pytest.mark.parametrize(("seeds", "paired"), [(3, False), (4, False), (3, True), (6, True)])
def test_no_p_value_is_below_the_least(seeds, paired):
    a = np.arange(seeds) / 100
    b = a + 10 + np.arange(seeds) / 7

    found = difference_of_seeds(a, b, paired)

    assert found.p_value == pytest.approx(found.least_p)
    assert found.least_p == least_p_value(seeds, seeds, paired)


def test_so_many_seeds_are_needed_and_one_fewer_is_not_enough():
    for tests in (1, 2, 10, 210):
        for paired in (False, True):
            seeds = seeds_needed(tests, paired)
            assert least_p_value(seeds, seeds, paired) <= 0.05 / tests
            assert least_p_value(seeds - 1, seeds - 1, paired) > 0.05 / tests


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_interval_covers_the_mean_as_often_as_it_says(seeds):
    rng = np.random.default_rng(11)
    covered = 0
    for values in rng.normal(0.4, 0.1, (2000, seeds)):
        found = mean_of_seeds(values, alpha=0.1)
        covered += found.lower.value <= 0.4 <= found.upper.value

    # 4 standard errors of 2000 trials at .9
    assert covered / 2000 == pytest.approx(0.9, abs=0.027)


def test_equal_methods_differ_as_seldom_as_the_level_says():
    rng = np.random.default_rng(12)
    rejected = 0
    for a, b in zip(rng.gamma(0.3, 1, (400, 5)), rng.gamma(0.3, 1, (400, 5)), strict=True):
        rejected += difference_of_seeds(a, b).p_value <= 0.05

    # 4 standard errors above .05; the values are far from normal
    assert rejected / 400 <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mean_of_seeds([]), "a finite number for each seed"),
        (lambda: mean_of_seeds([0.1, float("nan")]), "a finite number for each seed"),
        (lambda: difference_of_seeds([1.0], [1.0, 2.0]), "at least two seeds"),
        (lambda: difference_of_seeds([1, 2], [1, 2, 3], paired=True), "equally many pairs"),
        (lambda: mean_of_seeds([0.1, 0.2], alpha=2), "alpha"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(BadInput, match=said):
        call()
