"""R, Q and their harmonic mean: definitions by hand, coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import t as student

from lethe.errors import BadValue
from studies.meta_evaluation.robustness import (
    best_threshold,
    harmonic_mean,
    quantisation,
    relearning,
    robustness,
    symmetric,
)

INF, NAN = math.inf, math.nan
finite = st.floats(-1e3, 1e3)


def test_relearning_by_hand():
    # Retrain rises by 0.2; models rise by 0.4, 0.1, 0, fall by 0.1, and one value is missing.
    found = relearning([0.1, 0.1, 0.3, 0.3, NAN], [0.5, 0.2, 0.3, 0.2, 0.5], 0.0, 0.2)
    assert found == pytest.approx([0.5, 1.0, 1.0, 1.0, NAN], nan_ok=True)
    assert relearning([0.3, 0.3], [0.3, 0.4], 0.2, 0.1).tolist() == [1.0, 0.0]  # Retrain falls
    assert np.isnan(relearning([0.3], [INF], 0.0, 0.1)).all()
    assert np.isnan(relearning([0.3], [0.4], 0.0, NAN)).all()


def test_quantisation_by_hand():
    found = quantisation([0.1, 0.2, 0.0, 0.0, 0.1, -0.1, NAN, 1.0], [0.2, 0.1, 0.0, 0.3, 0.0, 0.1, 0.1, INF])
    assert found == pytest.approx([0.5, 1.0, 1.0, 0.0, 1.0, NAN, NAN, NAN], nan_ok=True)


@given(finite, finite)
@settings(max_examples=100)
def test_the_symmetric_form_does_not_know_before_from_after(x, y):
    assert symmetric([x], [y]) == pytest.approx(symmetric([y], [x]))
    assert 0 <= symmetric([x], [y])[0] <= 1
    assert symmetric([x], [x])[0] == pytest.approx(1.0)


def test_robustness_is_the_harmonic_mean_of_means_and_its_draws_are_of_whole_models():
    r, q = np.array([1.0, 0.5, NAN, 0.0] * 4), np.array([1.0, 0.8, 0.6, NAN] * 4)
    found = robustness(r, q, draws=200, seed=4)
    assert found.relearning.value == pytest.approx(0.5)
    assert found.quantisation.value == pytest.approx(0.8)
    assert found.both.value == pytest.approx(2 / (1 / 0.5 + 1 / 0.8))
    picks, means = np.random.default_rng(4).integers(16, size=(200, 16)), []
    for pick in picks:
        with np.errstate(invalid="ignore"):
            own = [np.nan if np.isnan(v[pick]).all() else np.nanmean(v[pick]) for v in (r, q)]
        means.append(harmonic_mean(*own))
    half = student.isf(0.025, 11) * np.nanstd(logit(np.clip(means, 1e-6, 1 - 1e-6)))
    expected = expit(logit(found.both.value) + half * np.array([-1, 1]))
    assert (found.both.low, found.both.high) == pytest.approx(tuple(expected))
    assert (found.relearning.n, found.quantisation.n, found.both.n) == (12, 12, 12)


def test_fewer_than_ten_groups_have_no_interval():
    r, groups = np.linspace(0.1, 0.9, 27), np.repeat(np.arange(9), 3)
    few, many = (robustness(r, r, draws=100, groups=own).both for own in (groups, np.arange(27)))
    assert few.known
    assert np.isnan([few.low, few.high]).all()
    assert many.low < many.value < many.high


def test_robustness_without_values():
    found = robustness([], [])
    assert not any(one.known for one in (found.relearning, found.quantisation, found.both))
    assert not robustness([NAN, NAN], [1.0, 1.0]).both.known
    with pytest.raises(BadValue):
        robustness([1.0], [1.0, 0.5])


def test_coverage_of_the_mean_of_r():
    rng, runs, inside = np.random.default_rng(2), 300, 0
    for run in range(runs):
        found = robustness(rng.beta(2, 2, 40), rng.beta(4, 2, 40), draws=300, seed=run)
        inside += found.both.low <= harmonic_mean(0.5, 2 / 3) <= found.both.high
    assert inside / runs > 0.93


def test_coverage_with_ten_methods():
    rng, runs, inside = np.random.default_rng(5), 400, 0
    for run in range(runs):
        r = np.repeat(rng.random(10), 3) * 0.8 + 0.2 * rng.random(30)
        found = robustness(r, np.ones(30), draws=200, seed=run, groups=np.repeat(np.arange(10), 3)).relearning
        inside += found.low <= 0.5 <= found.high
    assert inside / runs > 0.93


def test_the_best_threshold_separates_and_stays_between_its_values():
    assert best_threshold([4, 5, 6], [1, 2, 3]) == 3.5
    assert best_threshold([INF, 2], [1, 1]) == 1.5
    assert best_threshold([1, 1], [1, 1]) == 1
