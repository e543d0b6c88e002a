"""The band holds over the whole curve, and half-life and excess follow from it."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.errors import BadValue
from lethe.statistics.many_prompts import Counted, band, excess, half_life


def counts(values, n=200, binary=True):
    return [Counted(budget, value, value, n, binary) for budget, value in zip((0, 1, 2, 4), values, strict=True)]


@pytest.mark.parametrize("binary", [True, False])
def test_the_band_covers_every_point_together(binary):
    """Questions differ in their rates, so the pooled answers are not identically distributed."""
    rng, alpha, runs = np.random.default_rng(0), 0.1, 600
    rates = rng.beta(0.3, 2, size=(4, 10))
    missed = 0
    for _ in range(runs):
        drawn = (
            rng.binomial(20, rates)
            if binary
            else rng.beta(2 * rates[..., None] + 0.1, 2, size=(4, 10, 20)).sum(-1)
        )
        truth = rates.mean(-1) if binary else ((2 * rates + 0.1) / (2 * rates + 2.1)).mean(-1)
        points = band(counts(drawn.sum(-1), binary=binary), alpha)
        missed += any(not p.lower.value <= t <= p.upper.value for p, t in zip(points, truth, strict=True))
    assert missed / runs <= alpha
    assert binary is False or missed > 0  # a band that never misses would show nothing


def test_the_excess_covers_every_difference_together():
    rng, alpha, runs, missed = np.random.default_rng(1), 0.1, 600, 0
    rates = rng.beta(0.3, 2, size=(2, 4, 10))
    truth = np.subtract(*rates.mean(-1))
    for _ in range(runs):
        one, two = (counts(own.sum(-1)) for own in rng.binomial(20, rates))
        found = excess(one, two, alpha)
        missed += any(not e.lower.value <= t <= e.upper.value for e, t in zip(found, truth, strict=True))
    assert missed / runs <= alpha


def test_on_null_data_no_excess_is_proven():
    rng, proven = np.random.default_rng(2), 0
    for _ in range(300):
        one, two = (counts(own) for own in rng.binomial(200, 0.1, size=(2, 4)))
        proven += any(e.lower.value > 0 for e in excess(one, two, 0.1))
    assert proven / 300 <= 0.1


def test_half_life_compares_with_half_of_the_reference():
    base = band([Counted(0, 180, 180, 200, True)], 0.05)[0]
    found = half_life(band(counts([2, 40, 95, 140]), 0.05), base)
    assert (found.earliest, found.estimate, found.latest) == (2, 2, 4)
    none = half_life(band(counts([2, 3, 4, 5]), 0.05), base)
    assert (none.earliest, none.estimate, none.latest) == (None, None, None)


def test_a_missing_score_widens_both_sides():
    (point,) = band([Counted(0, 10, 30, 100, True)], 0.05)
    (without,) = band([Counted(0, 10, 10, 100, True)], 0.05)
    assert point.upper.value > without.upper.value
    assert point.lower.value == without.lower.value


def test_only_budgets_of_both_curves_are_compared():
    one, two = counts([1, 2, 3, 4]), counts([1, 2, 3, 4])[1:]
    assert [e.budget for e in excess(one, two, 0.05)] == [1, 2, 4]


@pytest.mark.parametrize("wrong", [[], [Counted(0, 0, 0, 0, True)]])
def test_a_curve_without_answers_is_refused(wrong):
    with pytest.raises(BadValue):
        band(wrong, 0.05)
