"""Roots of many functions at once are, to the bit, those of scipy's slower search."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize.elementwise import find_root

from lethe.statistics.roots import MOST_STEPS, TINY, find_roots

FUNCTIONS = {
    "exponential": lambda x, root: np.exp(x) - np.exp(root),
    "falling": lambda x, root: np.tanh(3 * (root - x)),
    "flat at the root": lambda x, root: (x - root) ** 3,
    "steps": lambda x, root: np.floor(8 * x) - np.floor(8 * root),
}


def ends_of_scipy(function, low, high, roots, absolute, relative, zero):
    tolerances = {"xatol": absolute, "xrtol": relative, "fatol": zero}
    found = find_root(function, (low, high), args=(roots,), tolerances=tolerances)
    return (*found.bracket, *found.f_bracket)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("tolerances", [(1e-15, 1e-15, TINY), (1e-6, 0.0, 0.0), (1e-13, 0.0, TINY)])
@settings(max_examples=20)
@given(
    roots=st.lists(st.floats(-3, 3), min_size=1, max_size=30),
    low=st.floats(-9, 2),  # of some roots the bracket is none
)
def test_brackets_and_values_are_those_of_scipy(function, tolerances, roots, low):
    absolute, relative, zero = tolerances
    ends = np.full(len(roots), low), np.full(len(roots), 4.0)
    roots = np.array(roots)

    found = find_roots(function, *ends, roots, absolute=absolute, relative=relative, zero=zero)

    expected = ends_of_scipy(function, *ends, roots, *tolerances)
    for mine, theirs in zip(
        (found.low, found.high, found.f_low, found.f_high), expected, strict=True
    ):
        assert np.array_equal(mine, theirs)


def test_a_bracket_that_no_double_divides_ends():
    asked = []

    def function(x, _):
        asked.append(x)
        return np.where(x > 0.5, 1.0, -1.0)

    found = find_roots(function, np.zeros(1), np.ones(1), np.zeros(1), absolute=0.0, zero=0.0)

    assert found.high[0] == np.nextafter(0.5, 1)
    assert len(asked) <= MOST_STEPS + 2
