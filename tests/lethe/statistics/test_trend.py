"""The permutation test of a trend: against SciPy's exact test, by group, with ties, and on null data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import kendalltau

from lethe.errors import BadValue
from lethe.statistics.two_sample import trend


def plain(x, y, groups):
    """Every permutation within the groups, by brute force."""
    places = [[i for i, one in enumerate(groups) if one == group] for group in dict.fromkeys(groups)]

    def s(values):
        return sum(
            np.sign(x[i] - x[j]) * np.sign(values[i] - values[j])
            for own in places
            for i, j in itertools.combinations(own, 2)
        )

    every = []
    for orders in itertools.product(*(itertools.permutations(own) for own in places)):
        values = list(y)
        for own, order in zip(places, orders, strict=True):
            for i, j in zip(own, order, strict=True):
                values[i] = y[j]
        every.append(s(values))
    return np.mean([one <= s(y) for one in every]), np.mean([one >= s(y) for one in every])


def test_the_p_values_are_those_of_all_permutations():
    rng = np.random.default_rng(0)
    for groups in ([0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 1, 1]):
        x, y = list(rng.integers(0, 4, 6)), list(rng.integers(0, 4, 6))  # ties
        found = trend(x, y, groups)
        falls, rises = plain(x, y, groups)
        assert found.p_falls == pytest.approx(falls, abs=0.02)
        assert found.p_rises == pytest.approx(rises, abs=0.02)


def test_tau_and_p_are_scipys():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=8), rng.normal(size=8)
    found, known = trend(x, y), kendalltau(x, y, alternative="greater", method="exact")
    assert found.tau == pytest.approx(known.statistic)
    assert found.p_rises == pytest.approx(known.pvalue, abs=0.02)


@pytest.mark.parametrize("ties", [False, True])
def test_a_true_null_is_rejected_at_most_as_often_as_said(ties):
    rng = np.random.default_rng(2)
    rejected = []
    for _ in range(400):
        y = rng.integers(0, 3, 9) if ties else rng.normal(size=9)
        rejected.append(trend(range(9), y, [0, 0, 0, 0, 0, 1, 1, 1, 1], permutations=199).p_falls <= 0.05)
    assert np.mean(rejected) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_no_order_is_no_evidence():
    found = trend([1, 1, 1], [3, 2, 1])
    assert (found.tau, found.p_falls, found.p_rises, found.points) == (None, 1.0, 1.0, 3)
    assert trend([], []).p_falls == 1.0


@pytest.mark.parametrize(
    ("x", "y", "groups"), [([1], [1, 2], None), ([1, 2], [1, float("nan")], None), ([1, 2], [1, 2], [0])]
)
def test_other_values_are_refused(x, y, groups):
    with pytest.raises(BadValue):
        trend(x, y, groups)
