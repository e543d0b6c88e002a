"""Claims over many prompts, curves by attack budget, and intervals for comparisons: formulas, coverage, edges."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import bdtr, bdtrc

from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.many_prompts import (
    Counted,
    band,
    distinct_share_interval,
    every_prompt_under,
    half_life,
    holm,
    mean_interval,
    pooled,
    pooled_average,
    share_above,
    share_interval,
    within_variance_interval,
    worst_prompt,
)
from tests.lethe.statistics.coverage import many_misses
from tests.lethe.statistics.draws import tolerated


def bounds(*values):
    return [x and Bound(x, "upper", 0.01, Covers.ONE_PROMPT, Assumes.DRAWS, "m", 9) for x in values]


def test_worst_and_every_prompt():
    place, claim = worst_prompt(bounds(0.1, None, 0.4, 0.4, 0.2))
    assert (place, claim.value, claim.covers, claim.alpha) == (2, 0.4, Covers.WORST_PROMPT, 0.01)
    holds, claim = every_prompt_under(bounds(0.1, 0.4), 0.4)
    assert (holds, claim.value, claim.covers) == (True, 0.4, Covers.EVERY_PROMPT)
    assert not every_prompt_under(bounds(0.1, 0.4), 0.39)[0]


def test_the_pool_is_clopper_pearson_on_the_sum():
    claim = pooled_average(np.array([0, 2, 1]), 10, 0.05)
    assert claim.value == pytest.approx(float(binary_upper(3, 30, 0.05)))
    assert (claim.covers, claim.side, claim.n) == (Covers.AVERAGE, "upper", 30)
    below = pooled_average(np.array([0, 2, 1]), 10, 0.05, "lower")
    assert (below.value, below.side) == (pytest.approx(float(binary_lower(3, 30, 0.05))), "lower")


def test_nothing_is_pooled_where_the_pooled_rule_does_not_hold():
    assert pooled([0, 2, 1], [10] * 3, 0.25) == pooled_average([0, 2, 1], 10, 0.25)
    assert pooled([0, 2, 1], [10] * 3, 0.26) is None
    assert pooled([0, 2, 1], [10, 10, 11], 0.05) is None
    assert pooled([0, None, 1], [10] * 3, 0.05) is None
    assert pooled([], [], 0.05) is None


def test_holm_by_hand():
    # .004 <= .05/4, .013 <= .05/3, .02 <= .05/2, .2 > .05
    certified, claim = holm(np.array([0.2, 0.02, 0.004, 0.013]), 0.1, 0.05)
    assert certified.tolist() == [False, True, True, True]
    assert (claim.value, claim.alpha, claim.covers) == (0.1, 0.05, Covers.CERTIFIED)
    # .013 > .05/4 ends the list at once, whatever follows
    assert not holm(np.array([0.013, 0.013, 0.02, 0.02]), 0.1, 0.05)[0].any()
    assert holm(np.array([0.001, 0.002]), 0.1, 0.05)[0].all()


def test_false_statements_over_many_prompts_stay_under_alpha():
    """40 prompts at once with known truth: each claim is wrong in at most alpha of the runs, the plain table more often."""
    for name, share in many_misses(60, 0.05, 400, seed=7):
        assert share <= tolerated(0.05, 400), name
    rates = np.repeat([0.1, 0.02], 20)
    hits = np.random.default_rng(7).binomial(60, rates, (400, 40))
    assert np.mean((binary_upper(hits, 60, 0.05) < rates).any(axis=1)) > 4 * 0.05


def counts(values, n=200, binary=True):
    return [Counted(budget, value, value, n, binary) for budget, value in zip((0, 1, 2, 4), values, strict=True)]


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
    assert (interval.n, interval.alpha) == (10, alpha)


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
    assert distinct_share_interval([1], [1], 0.05).upper == 1


@pytest.mark.parametrize("interval", [share_interval, mean_interval])
def test_missing_counts_as_zero_below_and_one_above(interval):
    whole = np.tile([0.0, 1.0, 1.0, np.nan], 200)[None, :]
    found = interval(whole, 0.05)
    assert found.lower == interval(np.nan_to_num(whole, nan=0.0), 0.05).lower
    assert found.upper == interval(np.nan_to_num(whole, nan=1.0), 0.05).upper
    assert found.value == pytest.approx(2 / 3)
    assert interval([[0.0, 1.0], [1.0, 1.0]], 0.05).value == 0.75  # the fewest draws


def test_the_share_of_prompts_above_leaves_out_those_without_a_bound():
    own = [None, *(SimpleNamespace(value=value) for value in (0.6, 0.4))]
    assert (share_above(own, 0.5), share_above([None], 0.5)) == (0.5, None)
