"""A part of `tests.benchmarks audit-calibration`: levels that hold, and levels that do not where the assumption fails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from lethe.statistics.one_run.counts import release
from lethe.statistics.one_run.methods import lower_bound
from tests.lethe.statistics.one_run.calibration import (
    ALPHA,
    BRUTE,
    PRODUCT,
    SHARED,
    brute_force,
    chosen_afterwards,
    deviations,
    false_rejections,
    product_setting,
    shared_setting,
    tolerated,
    wrong,
)
from tests.lethe.statistics.one_run.simulated_mechanisms import gaussian

# Runs where 2,000, or 300 with shared bits, take too long or tell too little; `audit-calibration` of the
# benchmarks has more of each.
FEW = {
    "20 random bits revealed": 60,
    "all bits revealed together": 20_000,
    "subsampled-gaussian, r = 100": 500,
    "subsampled-gaussian, r = 500": 500,
}


@pytest.mark.parametrize("name", PRODUCT)
def test_under_independent_channels_the_level_holds(name):
    setting, runs = product_setting(name), FEW.get(name, 2000)
    assert not wrong(setting, false_rejections(setting, runs), runs)


@pytest.mark.parametrize("name", SHARED)
def test_where_bits_share_randomness_exact_and_chernoff_fail_and_the_others_hold(name):
    setting, runs = shared_setting(name), FEW.get(name, 300)
    assert not wrong(setting, false_rejections(setting, runs), runs)


@pytest.mark.parametrize("name", BRUTE)
def test_exact_is_the_mechanisms_own_probability(name):
    for u, share, exact in brute_force(name, 3000):
        assert deviations(share, exact, 3000) < 4.5, u


def test_r_chosen_after_the_fact_breaks_the_level_and_declared_r_keep_it():
    shares = chosen_afterwards(500)
    assert shares["best of five"] > tolerated(ALPHA, 500)
    assert shares["declared, each at alpha / 5"] <= tolerated(ALPHA, 500)


def test_clopper_pearson_on_independent_guesses():
    """Guessing by one threshold, the Gaussian with mu = 1 is as private as the odds of its errors say."""
    truth = math.log(ndtr(0.5) / ndtr(-0.5))
    rng, missed = np.random.default_rng(5), 0
    for _ in range(1000):
        drawn = gaussian(200, rng, mu=1.0, guess="threshold")
        counts = release(drawn.bits, drawn.guesses, drawn.scores, 200)
        missed += lower_bound(counts, 0.0, ALPHA) > truth
    assert missed / 1000 <= tolerated(ALPHA, 1000)
