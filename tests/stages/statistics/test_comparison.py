"""Intervals for comparisons: their formulas, their coverage, their edges."""

import math

import numpy as np
import pytest

from stages.errors import BadValue
from stages.statistics.comparison import compare, distinct_share_interval, mean_interval, within_variance_interval

ALPHA, RUNS = 0.1, 1000
# Misses allowed in RUNS: alpha and three standard errors.
ALLOWED = RUNS * (ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / RUNS))


def test_mean_interval_is_the_formula_of_the_paper():
    values, alpha = [0.0, 0.25, 0.5, 1.0, 0.75], 0.05
    mean = sum(values) / 5
    variance = sum((a - b) ** 2 for a in values for b in values) / (2 * 5 * 4)
    log = math.log(2 / (alpha / 2))
    width = math.sqrt(2 * variance * log / 5) + 7 * log / (3 * 4)
    interval = mean_interval(np.array(values), alpha)
    assert interval.value == mean
    assert interval.lower == max(0, mean - width)
    assert interval.upper == min(1, mean + width)
    assert (interval.n, interval.alpha, interval.side) == (5, alpha, "two-sided")


def test_mean_interval_narrows_where_the_values_vary_little():
    wide = mean_interval(np.tile([0.0, 1.0], 500), 0.01)
    narrow = mean_interval(np.tile([0.49, 0.51], 500), 0.01)
    assert narrow.upper - narrow.lower < 0.3 * (wide.upper - wide.lower)


def test_missing_counts_as_zero_below_and_one_above():
    whole = np.tile([0.0, 1.0, 1.0, np.nan], 200)
    interval = mean_interval(whole, 0.05)
    assert interval.lower == mean_interval(np.nan_to_num(whole, nan=0.0), 0.05).lower
    assert interval.upper == mean_interval(np.nan_to_num(whole, nan=1.0), 0.05).upper
    assert interval.value == pytest.approx(2 / 3)


@pytest.mark.parametrize("draw", ["questions", "rare", "beta", "sure"])
def test_mean_interval_covers(draw):
    rng = np.random.default_rng(7)
    chances = np.array([0.0, 0.02, 0.3, 0.9])  # not identically distributed: four questions pooled
    misses = 0
    for _ in range(RUNS):
        if draw == "questions":
            values, mean = (rng.random((64, 4)) < chances).astype(float), chances.mean()
        elif draw == "rare":
            values, mean = (rng.random(256) < 0.01).astype(float), 0.01
        elif draw == "beta":
            values, mean = rng.beta(2, 5, 256), 2 / 7
        else:
            values, mean = np.ones(64), 1.0
        interval = mean_interval(values, ALPHA)
        misses += not interval.lower <= mean <= interval.upper
    assert misses <= ALLOWED


def test_variance_interval_covers_and_does_not_count_differences_between_questions():
    rng, misses = np.random.default_rng(8), 0
    chances = (0.05, 0.5, 0.95)
    variance = np.mean([p * (1 - p) for p in chances])
    for _ in range(RUNS):
        groups = [(rng.random(400) < p).astype(float) for p in chances]
        interval = within_variance_interval(groups, ALPHA)
        misses += not interval.lower <= variance <= interval.upper
    assert misses <= ALLOWED
    between = within_variance_interval([np.zeros(400), np.ones(400)], ALPHA)
    assert between.value == 0
    assert between.upper < 0.03


def test_variance_is_the_mean_over_disjoint_pairs():
    groups = [np.array([0.0, 1.0, 0.5, 0.5, 0.9]), np.array([0.2, 0.4])]  # the odd one out is left out
    expected = (1.0 + 0.0 + 0.04) / 3 / 2
    assert within_variance_interval(groups, 0.05).value == pytest.approx(expected)


def test_distinct_share_covers():
    rng, misses, n, kinds = np.random.default_rng(9), 0, 32, (2, 8, 40)
    expected = np.mean([k * (1 - (1 - 1 / k) ** n) / n for k in kinds])
    for _ in range(RUNS):
        distinct = [len(set(rng.integers(k, size=n).tolist())) for k in kinds]
        interval = distinct_share_interval(distinct, [n] * len(kinds), ALPHA)
        misses += not interval.lower <= expected <= interval.upper
    assert misses <= ALLOWED


def test_distinct_share_is_mcdiarmid():
    interval = distinct_share_interval([10, 20], [40, 40], 0.05)
    width = math.sqrt(math.log(2 / 0.05) / 2 * sum((1 / (2 * 40)) ** 2 for _ in range(80)))
    assert interval.value == 0.375
    assert interval.upper - interval.value == pytest.approx(width)


def test_only_intervals_that_do_not_meet_are_told_apart():
    low, high = mean_interval(np.full(500, 0.1), 0.01), mean_interval(np.full(500, 0.6), 0.01)
    assert compare(low, high) == "lower"
    assert compare(high, low) == "higher"
    assert compare(low, low) == "not shown"


@pytest.mark.parametrize("alpha", [0, 0.51, -1, 1])
def test_alpha_outside_its_range(alpha):
    with pytest.raises(BadValue, match="alpha"):
        mean_interval(np.zeros(4), alpha)
    with pytest.raises(BadValue, match="alpha"):
        distinct_share_interval([1], [2], alpha)


@pytest.mark.parametrize("values", [[], [0.5], [np.nan, np.nan], [0.5, 1.5], [-0.1, 0.5]])
def test_values_that_allow_no_interval(values):
    with pytest.raises(BadValue, match="values"):
        mean_interval(np.array(values), 0.05)


@pytest.mark.parametrize(("distinct", "drawn"), [([], []), ([1], [1, 2]), ([3], [2]), ([0], [4])])
def test_counts_that_allow_no_interval(distinct, drawn):
    with pytest.raises(BadValue, match="distinct"):
        distinct_share_interval(distinct, drawn, 0.05)
