"""pass^k: the estimate by hand, the ends against leak@k of the failures, and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.statistics.leak_rates import Rate, pass_hat_k

NONE = np.zeros(1, dtype=int)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.sampled_from([0.01, 0.05, 0.5]))
def test_the_estimate_is_the_share_of_right_subsets(right, alpha):
    n, ks = np.full(len(right), 6), [1, 2, 3, 6]
    band = pass_hat_k(np.array(right), n, NONE.repeat(len(right)), alpha, ks)
    expected = [np.mean([math.comb(one, k) / math.comb(6, k) for one in right]) for k in ks]
    np.testing.assert_allclose(band.estimate, expected, atol=1e-12)
    assert (np.diff(band.lower) <= 1e-12).all()
    assert (np.diff(band.upper) <= 1e-12).all()
    assert (band.lower <= band.upper).all()
    some = Rate.of(n - np.array(right), n).mean(alpha, ks)
    np.testing.assert_allclose(band.lower, 1 - some.upper)


def test_a_missing_answer_is_not_right_below_and_no_failure_above():
    known, lacking = (pass_hat_k(np.array([3]), np.array([4]), np.array([one]), 0.05, [1, 2]) for one in (0, 1))
    assert (lacking.lower <= known.lower + 1e-12).all()
    assert lacking.upper[0] == 1.0
    assert lacking.estimate.tolist() == [1.0, 1.0]


def test_the_band_covers():
    random, p = np.random.default_rng(0), np.array([0.1, 0.5, 0.9, 1.0])
    ks = [1, 2, 4]
    truth = np.array([(p**k).mean() for k in ks])
    missed = np.zeros(2)
    for _ in range(200):
        band = pass_hat_k(random.binomial(8, p), np.full(4, 8), np.zeros(4), 0.1, ks)
        missed += [(band.lower > truth).any(), (band.upper < truth).any()]
    assert (missed <= 28).all()  # 200 * 0.1, and two standard deviations


@pytest.mark.parametrize(("alpha", "ks"), [(0.0, [1]), (0.05, [0])])
def test_wrong_levels_and_numbers(alpha, ks):
    with pytest.raises(BadValue):
        pass_hat_k(np.array([1]), np.array([2]), NONE, alpha, ks)
