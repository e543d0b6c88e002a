"""Intervals for comparisons: their formulas, their coverage, their edges."""

import math

import numpy as np
import pytest
from scipy.special import bdtr, bdtrc

from lethe.errors import BadValue
from lethe.statistics.many_prompts import (
    compare,
    distinct_share_interval,
    mean_interval,
    share_interval,
    within_variance_interval,
)

ALPHA, RUNS = 0.1, 1000
# Misses allowed in RUNS: alpha plus three standard errors.
ALLOWED = RUNS * (ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / RUNS))
CHANCES = np.array([0.0, 0.02, 0.3, 0.9])  # questions differ: the draws are not identically distributed
INTERVALS = (share_interval, mean_interval, within_variance_interval)


def bernoulli(rng, n):
    return (rng.random((len(CHANCES), n)) < CHANCES[:, None]).astype(float)


def halves(low, high, n=500):
    return np.tile([low, high], n)[None, :]


def naiveempirical_width(values, alpha):
    n = len(values)
    variance = sum((a - b) ** 2 for a in values for b in values) / (2 * n * (n - 1))
    return math.sqrt(2 * variance * math.log(2 / alpha) / n) + 7 * math.log(2 / alpha) / (3 * (n - 1))


def test_mean_interval_is_bernstein_with_a_bounded_variance():
    groups, alpha = [[0.1, 0.4, 0.2, 0.3, 0.9], [0.6, 0.6, 0.5, 0.9, 0.1]], 0.2
    squares = [(row[i] - row[i + 1]) ** 2 for row in groups for i in (0, 2)]
    variance = (sum(squares) / 4 + naiveempirical_width(squares, alpha / 4)) / 2
    log = math.log(4 / alpha)
    width = math.sqrt(2 * min(variance, 0.25) * log / 10) + log / 30
    interval = mean_interval(groups, alpha)
    assert interval.value == pytest.approx(0.46)
    assert interval.lower == pytest.approx(max(0, 0.46 - width))
    assert interval.upper == pytest.approx(min(1, 0.46 + width))
    assert (interval.n, interval.alpha, interval.side) == (10, alpha, "two-sided")


def test_variance_interval_is_the_empirical_bernstein_inequality_on_pairs():
    groups, alpha = [np.linspace(0, 1, 41), np.linspace(0.3, 0.4, 41)], 0.2  # the odd draw is left out
    squares = [(row[i] - row[i + 1]) ** 2 for row in groups for i in range(0, 40, 2)]
    width = naiveempirical_width(squares, alpha / 2)
    interval = within_variance_interval(groups, alpha)
    assert interval.value == pytest.approx(sum(squares) / 40 / 2)
    assert interval.upper == pytest.approx((sum(squares) / 40 + width) / 2)


def test_share_interval_is_clopper_pearson_on_the_pooled_count():
    groups, alpha = np.zeros((5, 20)), 0.05
    groups[0, :7] = 1
    interval = share_interval(groups, alpha)
    assert bdtr(7, 100, interval.upper) == pytest.approx(alpha / 2)
    assert bdtrc(6, 100, interval.lower) == pytest.approx(alpha / 2)


@pytest.mark.parametrize(("found", "n"), [(40, 400), (3, 200), (200, 200)])
def test_distinct_share_solves_the_two_inequalities(found, n):
    interval = distinct_share_interval([found], [n], 0.05)
    fewest = interval.lower * n
    log = math.log(2 / 0.05)
    assert math.exp(-((found - fewest) ** 2) / (2 * fewest + 2 * (found - fewest) / 3)) == pytest.approx(0.025)
    most = found + log + math.sqrt(log**2 + 2 * log * found)
    assert math.exp(-((most - found) ** 2) / (2 * most)) == pytest.approx(0.025)
    assert interval.upper == min(1, most / n)


@pytest.mark.parametrize("interval", INTERVALS)
def test_it_covers_what_it_is_about(interval):
    rng, misses = np.random.default_rng(7), 0
    true = {"within_variance_interval": np.mean(CHANCES * (1 - CHANCES))}.get(interval.__name__, CHANCES.mean())
    for _ in range(RUNS):
        found = interval(bernoulli(rng, 64), ALPHA)
        misses += not found.lower <= true <= found.upper
    assert misses <= ALLOWED


@pytest.mark.parametrize("draw", ["beta", "lattice", "sure"])
def test_mean_and_variance_cover_scores_of_other_shapes(draw):
    rng, missed_mean, missed_variance = np.random.default_rng(8), 0, 0
    points, chances = np.array([0, 0.1, 0.5, 1.0]), np.array([0.5, 0.3, 0.15, 0.05])
    for _ in range(RUNS):
        if draw == "beta":
            values, mean, variance = rng.beta(2, 5, (3, 128)), 2 / 7, 10 / (49 * 8)
        elif draw == "lattice":
            values, mean = rng.choice(points, (3, 128), p=chances), points @ chances
            variance = points**2 @ chances - mean**2
        else:
            values, mean, variance = np.full((3, 128), 0.4), 0.4, 0.0
        missed_mean += not (found := mean_interval(values, ALPHA)).lower <= mean <= found.upper
        missed_variance += not (found := within_variance_interval(values, ALPHA)).lower <= variance <= found.upper
    assert max(missed_mean, missed_variance) <= ALLOWED


@pytest.mark.parametrize("kinds", [(1, 1, 1), (2, 8, 40), (1000, 1000, 1000)])
def test_distinct_share_covers(kinds):
    rng, misses, n = np.random.default_rng(9), 0, 32
    expected = np.mean([k * (1 - (1 - 1 / k) ** n) / n for k in kinds])
    for _ in range(RUNS):
        distinct = [len(set(rng.integers(k, size=n).tolist())) for k in kinds]
        interval = distinct_share_interval(distinct, [n] * len(kinds), ALPHA)
        misses += not interval.lower <= expected <= interval.upper
    assert misses <= ALLOWED


def test_differences_between_questions_do_not_count():
    apart, alike = np.vstack([np.zeros(400), np.ones(400)]), np.full((2, 400), 0.5)
    assert within_variance_interval(apart, 0.05).value == 0
    width = [found.upper - found.lower for found in (mean_interval(apart, 0.05), mean_interval(alike, 0.05))]
    assert width[0] == pytest.approx(width[1])


def test_mean_interval_narrows_where_the_draws_vary_little():
    wide, narrow = mean_interval(halves(0, 1), 0.01), mean_interval(halves(0.49, 0.51), 0.01)
    assert narrow.upper - narrow.lower < 0.3 * (wide.upper - wide.lower)


@pytest.mark.parametrize("interval", [share_interval, mean_interval])
def test_missing_counts_as_zero_below_and_one_above(interval):
    whole = np.tile([0.0, 1.0, 1.0, np.nan], 200)[None, :]
    found = interval(whole, 0.05)
    assert found.lower == interval(np.nan_to_num(whole, nan=0.0), 0.05).lower
    assert found.upper == interval(np.nan_to_num(whole, nan=1.0), 0.05).upper
    assert found.value == pytest.approx(2 / 3)


def test_a_missing_draw_leaves_its_pair_open():
    rows = np.tile([0.5, 0.5, 0.5, np.nan], 100)[None, :]
    found = within_variance_interval(rows, 0.05)
    assert found.value == 0
    assert found.lower == 0
    assert found.upper > 0.25


def test_only_intervals_that_do_not_meet_are_told_apart():
    low, high = mean_interval(halves(0.1, 0.1), 0.01), mean_interval(halves(0.6, 0.6), 0.01)
    assert compare(low, high) == "lower"
    assert compare(high, low) == "higher"
    assert compare(low, low) == "not shown"


@pytest.mark.parametrize("alpha", [0, 0.51, -1, 1])
def test_alpha_outside_its_range(alpha):
    for interval in INTERVALS:
        with pytest.raises(BadValue, match="alpha"):
            interval(np.zeros((2, 4)), alpha)
    with pytest.raises(BadValue, match="alpha"):
        distinct_share_interval([1], [2], alpha)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(
    "groups", [[], [[0.0, 1.0]], [[0.0], [1.0]], [[0.0, 1.0, 0.0], [0.0, 1.0]], [[np.nan] * 4]]
)
def test_groups_that_allow_no_interval(interval, groups):
    with pytest.raises(BadValue, match="groups"):
        interval(groups, 0.05)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_scores_outside_their_range(interval, value):
    with pytest.raises(BadValue, match="scores"):
        interval([[0.0, 1.0, value, 0.0]], 0.05)


def test_a_share_needs_zeros_and_ones():
    with pytest.raises(BadValue, match="0 or 1"):
        share_interval(halves(0.2, 0.4), 0.05)


@pytest.mark.parametrize(("distinct", "drawn"), [([], []), ([1], [1, 2]), ([3], [2]), ([0], [4])])
def test_counts_that_allow_no_interval(distinct, drawn):
    with pytest.raises(BadValue, match="distinct"):
        distinct_share_interval(distinct, drawn, 0.05)
