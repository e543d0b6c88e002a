"""Bounds of many samples at the stop: the naive twin, coverage under rules that look, and differences of stopped sides."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.errors import BadValue
from lethe.statistics.mean_difference import difference, mean_of_differences
from lethe.statistics.sequential import SequentialTest, StoppedSamples, stopped_average, stopped_upper
from tests.lethe.statistics.misses import allowed
from tests.lethe.statistics.test_stopped_upper import greedy_stop

ALPHA = 0.1


def test_many_samples_at_once_have_the_bounds_of_each():
    rng = np.random.default_rng(0)
    samples = [rng.beta(0.3, 2, size=n).round(2) for n in (1, 7, 80)]
    samples += [np.zeros(40), np.ones(40), (rng.random(200) < 0.2).astype(float)]
    for alpha in (0.3, 0.001):
        expected = [stopped_upper(own, alpha) for own in samples]
        assert StoppedSamples(samples).uppers(alpha) == pytest.approx(expected, abs=3e-9)


def test_the_p_value_inverts_the_bound():
    samples = StoppedSamples([np.repeat([1.0, 0.0], [3, 97]), np.linspace(0, 0.4, 30)])
    for alpha in (0.4, 0.01):
        assert samples.p_values(samples.uppers(alpha)) == pytest.approx([alpha] * 2, rel=1e-4)
    assert samples.p_values(np.zeros(2)).tolist() == [1, 1]
    with pytest.raises(BadValue, match="samples"):
        StoppedSamples([np.empty(0)])


def rule(rng, rate, cap=120):
    """Draws until the verdict of early stopping at .2, or the cap."""
    test = SequentialTest(0.2, 0.2, 0.05, cap)
    test.update((rng.random(cap) < rate).astype(float))
    return test.scores


@pytest.mark.parametrize("stopped", [(True, True), (True, False), (False, True)])
def test_the_interval_covers_and_null_data_show_no_difference(stopped):
    """Each stopped side stops where its own bound is lowest, which is the worst that a rule can do."""
    rng, misses, false, runs = np.random.default_rng(sum(stopped) + stopped[0]), 0, 0, 40

    def draw(mean, looks):
        values = (rng.random(80) < mean).astype(float)
        return values[: greedy_stop(values, mean)] if looks else values

    for _ in range(runs):
        a, b, same = (
            draw(mean, looks) for mean, looks in zip((0.2, 0.4, 0.2), (*stopped, stopped[1]), strict=True)
        )
        found = difference(a, b, ALPHA, binary=True, stopped=stopped)
        misses += not found.low <= 0.2 <= found.high
        false += difference(a, same, ALPHA, binary=True, stopped=stopped).p_value <= ALPHA
    assert misses <= allowed(ALPHA, runs)
    assert false <= allowed(ALPHA, runs)


def test_bounds_for_a_fixed_number_would_not_hold_at_the_stop():
    """The naive comparison of stopped sides, which the module replaces: its claims are false far more often than alpha."""
    rng, naive, valid, runs = np.random.default_rng(4), 0, 0, 60
    for _ in range(runs):
        a = (rng.random(800) < 0.3).astype(float)
        low = np.cumsum(a) / np.arange(1, 801) + 1.9 * np.sqrt(0.21 / np.arange(1, 801))
        stop = max(20, int(np.argmin(low)) + 1)  # a rule that waits until the mean looks low
        fixed = (rng.random(800) < 0.3).astype(float)
        naive += difference(a[:stop], fixed, 0.5, binary=True).p_value <= 0.5
        valid += difference(a[:stop], fixed, 0.5, binary=True, stopped=(True, False)).p_value <= 0.5
    assert valid <= runs * 0.5
    assert valid < naive


def test_a_true_difference_of_stopped_sides_is_found_and_agrees_with_its_interval():
    rng = np.random.default_rng(5)
    for rate in (0.05, 0.3, 0.5, 0.9):
        a, b = rule(rng, 0.02), rule(rng, rate)
        found = difference(a, b, ALPHA, binary=True, stopped=(True, True))
        assert (found.p_value <= ALPHA) == (found.low > 0 or found.high < 0)
        back = difference(b, a, ALPHA, stopped=(True, True))
        assert (back.low, back.high) == pytest.approx((-found.high, -found.low))
        assert found.low <= rate - 0.02 <= found.high
    assert difference(np.zeros(120), b, ALPHA, binary=True, stopped=(True, True)).p_value < ALPHA
    assert found.method == "mixture martingale, at the stop"
    mixed = difference(a, np.ones(90), ALPHA, binary=True, stopped=(True, False))
    assert mixed.method == "A: mixture martingale, at the stop; B: Clopper-Pearson"
    part = difference(np.r_[a, np.nan], b, ALPHA, binary=True, stopped=(True, True))
    assert part.low < found.low


@pytest.mark.parametrize("stopped", [(True, True), (True, False)])
def test_the_average_covers_and_has_false_claims_at_most_alpha(stopped):
    rng, misses, false, runs = np.random.default_rng(6), 0, 0, 12
    rates = np.array([0.05, 0.3, 0.6])

    def draw(more, looks):
        return [
            rule(rng, rate + more) if looks else (rng.random(60) < rate + more).astype(float) for rate in rates
        ]

    for _ in range(runs):
        a, b, same = (draw(*how) for how in zip((0, 0.2, 0), (*stopped, stopped[1]), strict=True))
        found = mean_of_differences(a, b, ALPHA, True, stopped=stopped)
        misses += not found.low <= 0.2 <= found.high
        false += mean_of_differences(a, same, ALPHA, True, stopped=stopped).p_value <= ALPHA
    assert misses <= allowed(ALPHA, runs)
    assert false <= allowed(ALPHA, runs)


def test_the_average_of_unequal_stops_is_the_mean_of_its_questions_bounds():
    samples = [np.zeros(30), np.r_[np.ones(10), np.zeros(10)], np.full(5, np.nan)]
    found = stopped_average(samples, 0.2)
    share = 0.2 / 6
    uppers = [stopped_upper(np.nan_to_num(own, nan=1.0), share) for own in samples]
    lowers = [1 - stopped_upper(1 - np.nan_to_num(own, nan=0.0), share) for own in samples]
    assert (found.lower, found.upper) == pytest.approx((np.mean(lowers), np.mean(uppers)), abs=1e-8)
    assert (found.value, found.n) == (0.25, 55)
