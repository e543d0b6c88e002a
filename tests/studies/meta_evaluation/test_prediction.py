"""Rank correlations over models: scipy's values, coverage by simulation, groups of models that are alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from lethe.errors import BadValue
from studies.meta_evaluation.estimates import compare_rank_correlations, rank_correlation

INF, NAN = math.inf, math.nan
GROUPS, EACH = 15, 6  # as the methods of meta-authors, with three strengths and two seeds


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=30))
@settings(max_examples=100)
def test_rank_correlation_equals_scipy(pairs):
    x, y = np.array(pairs, float).T
    found = rank_correlation(x, y)
    if len(set(x)) < 2 or len(set(y)) < 2:
        assert not found.known
        return
    assert found.value == pytest.approx(spearmanr(x, y).statistic)
    assert -1 <= found.low <= found.value <= found.high <= 1


def test_rank_correlation_of_few_missing_and_infinite_values():
    assert not rank_correlation([1, 2, NAN, 4], [1, 2, 3, 4]).known
    assert rank_correlation([1, 2, 3, INF], [1, 2, 3, 4]).value == pytest.approx(1.0)
    perfect = rank_correlation(np.arange(30.0), np.arange(30.0))
    assert perfect.high == 1.0
    assert 0.9 < perfect.low < 1.0


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_coverage_of_the_rank_correlation(rho):
    """Spearman's correlation of a Gaussian pair is (6 / pi) arcsin(rho / 2)."""
    truth, rng, runs, inside = 6 / math.pi * math.asin(rho / 2), np.random.default_rng(1), 800, 0
    for _ in range(runs):
        x, noise = rng.normal(size=(2, 80))
        found = rank_correlation(x, rho * x + math.sqrt(1 - rho**2) * noise)
        inside += found.low <= truth <= found.high
    assert inside / runs > 0.925


def test_a_number_that_predicts_nothing_has_zero_in_its_interval():
    rng = np.random.default_rng(6)
    inside = [rank_correlation(*rng.normal(size=(2, 90))) for _ in range(300)]
    assert np.mean([one.low <= 0 <= one.high for one in inside]) > 0.92


def alike(rng: np.random.Generator, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian numbers of models in groups: 0.6 of the variance is common to a group."""
    zero = np.zeros(len(covariance))
    common = rng.multivariate_normal(zero, covariance, size=GROUPS)
    single = rng.multivariate_normal(zero, covariance, size=(GROUPS, EACH))
    values = math.sqrt(0.6) * common[:, None] + math.sqrt(0.4) * single
    return values.reshape(-1, len(covariance)).T, np.repeat(np.arange(GROUPS), EACH)


@pytest.mark.parametrize("rho", [0.0, 0.7])
def test_coverage_where_the_models_of_a_group_are_alike(rho):
    """The interval for independent models is far too narrow there."""
    truth, runs, inside, naive = 6 / math.pi * math.asin(rho / 2), 300, 0, 0
    for run in range(runs):
        (x, y), groups = alike(np.random.default_rng(run), np.array([[1, rho], [rho, 1]]))
        found, plain = rank_correlation(x, y, 0.05, groups, draws=200, seed=run), rank_correlation(x, y)
        inside += found.low <= truth <= found.high
        naive += plain.low <= truth <= plain.high
    assert inside / runs > 0.91
    assert naive / runs < 0.85


def test_two_numbers_that_predict_alike_are_seldom_told_apart():
    rho, runs, told = 0.6, 300, 0
    covariance = np.array([[1, rho, rho], [rho, 1, rho**2], [rho, rho**2, 1]])
    for run in range(runs):
        (back, first, second), groups = alike(np.random.default_rng(run), covariance)
        told += compare_rank_correlations(first, second, back, groups, draws=200, seed=run)[1] <= 0.05
    assert told / runs < 0.09


def test_a_number_that_predicts_is_told_from_noise():
    rng = np.random.default_rng(5)
    back, groups = rng.normal(size=90), np.repeat(np.arange(15), 6)
    gain, p_value = compare_rank_correlations(back + 0.1 * rng.normal(size=90), rng.normal(size=90), back, groups)
    assert gain > 0.5
    assert p_value < 0.001
    assert compare_rank_correlations(back, back, back, groups) == (0.0, 1.0)
    assert math.isnan(compare_rank_correlations(back, np.ones(90), back, groups)[0])


def test_the_swap_finds_what_a_bootstrap_of_the_difference_does_not():
    """Numbers with unequal noise over 15 methods of six alike models, and the same with equal noise for the level."""
    groups, runs, share = np.repeat(np.arange(15), 6), 100, {}
    for noise in (0.2, 0.5):
        told = 0
        for run in range(runs):
            rng = np.random.default_rng([run, 8])

            def normal(rng=rng):
                return np.sqrt(0.9) * np.repeat(rng.normal(size=15), 6) + np.sqrt(0.1) * rng.normal(size=90)

            back = normal()
            p = compare_rank_correlations(back + noise * normal(), back + 0.5 * normal(), back, groups, 199, run)[
                1
            ]
            told += p <= 0.05
        share[noise] = told / runs
    assert share[0.2] > 0.6
    assert share[0.5] <= 0.12


def test_a_draw_of_groups_equals_the_correlation_of_the_models_written_out():
    from studies.meta_evaluation.estimates import _counts, _drawn

    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 5, size=(2, 12)).astype(float)
    counts = _counts(np.repeat(np.arange(4), 3), 20, 1)
    found = _drawn(x, y, counts)
    for own, times in zip(found, counts.astype(int), strict=True):
        assert own == pytest.approx(spearmanr(np.repeat(x, times), np.repeat(y, times)).statistic)


def test_few_groups_say_nothing_and_equal_draws_are_no_point():
    x = np.arange(12.0)
    few = rank_correlation(x, x, 0.05, np.repeat([0, 1], 6))
    assert (few.value, few.low, few.high) == (1.0, -1.0, 1.0)
    perfect = rank_correlation(x, x, 0.05, np.repeat(np.arange(6), 2))
    assert perfect.low < 0.98
    assert perfect.high == 1.0
    with pytest.raises(BadValue, match="one length"):
        rank_correlation(x, x, 0.05, [1, 2])
