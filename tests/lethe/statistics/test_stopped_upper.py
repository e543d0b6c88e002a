"""The bound at a stop, for any order: coverage under rules that depend on the data, and the naive twin."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import betainc, betaln, logsumexp
from scipy.stats import beta

from lethe.statistics.sequential import anytime_upper, stopped_upper

ALPHA = 0.1


def test_it_agrees_with_the_integral_by_quadrature():
    """The mixture is Beta(1/2, 1/2) cut off at the null: for 0/1 scores the capital is a ratio of beta functions."""
    for ones, n in ((0, 50), (3, 50), (20, 60)):
        bound = stopped_upper(np.r_[np.ones(ones), np.zeros(n - ones)], ALPHA)
        log_mixture = (
            betaln(ones + 0.5, n - ones + 0.5)
            + np.log(betainc(ones + 0.5, n - ones + 0.5, bound))
            - betaln(0.5, 0.5)
            - np.log(betainc(0.5, 0.5, bound))
        )
        log_null = ones * np.log(bound) + (n - ones) * np.log1p(-bound)
        assert log_mixture - log_null == pytest.approx(np.log(1 / ALPHA), abs=1e-4)


def test_the_order_does_not_enter_and_the_bound_is_never_below_the_anytime_one():
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.beta(0.3, 2, size=rng.integers(1, 80))
        bound = stopped_upper(values, ALPHA)
        assert stopped_upper(rng.permutation(values), ALPHA) == pytest.approx(bound, abs=1e-8)
        assert anytime_upper(values, ALPHA) <= bound + 1e-8


def greedy_stop(values, mean):
    """The time at which the bound is lowest: the worst rule for someone who checks every draw."""
    shares = np.linspace(0.02, 0.98, 49)
    nodes, weights = mean * shares, beta(0.5, 0.5).pdf(mean * shares)
    steps = values[:, None] * (nodes / mean) + (1 - values[:, None]) * ((1 - nodes) / (1 - mean))
    return int(np.argmax(logsumexp(np.cumsum(np.log(steps), axis=0), b=weights, axis=1))) + 1


@pytest.mark.parametrize("mean", [0.02, 0.2, 0.6])
@pytest.mark.parametrize("graded", [False, True])
def test_coverage_under_a_rule_that_stops_where_the_bound_is_lowest(mean, graded):
    rng, misses, runs = np.random.default_rng(round(1000 * mean) + graded), 0, 200
    for _ in range(runs):
        values = rng.beta(mean, 1 - mean, 150) if graded else (rng.random(150) < mean).astype(float)
        stop = greedy_stop(values, mean)
        misses += stopped_upper(rng.permutation(values[:stop]), ALPHA) < mean
    assert misses <= runs * ALPHA + 2.6 * np.sqrt(runs * ALPHA * (1 - ALPHA))
