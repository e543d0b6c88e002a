"""Evidence by graded scores: a fine grid as its twin, order in the tolerance, and errors under looks."""

import math

import numpy as np
import pytest

from lethe.statistics.anytime_scores import (
    CORNERS,
    ScoreCounts,
    log_e_scores_forgot,
    log_e_scores_leak,
)
from lethe.statistics.sequential import StoppedSamples
from tests.lethe.statistics.draws import tolerated


def scores(seed, a, b, n=150):
    return np.random.default_rng(seed).beta(a, b, n)


def least_on_a_grid(model, retrain, tolerance, points=2000):
    """The least product over Retrain's means, one by one."""
    turned = retrain.turned()
    products = []
    for mean in np.linspace(0, 1 - tolerance, points):
        products.append(model.log_capital(mean + tolerance) + turned.log_capital(1 - mean))
    return min(products)


def test_the_capital_is_that_of_stopped_samples():
    values = scores(0, 2, 5)

    capital = StoppedSamples([values]).log_capitals(np.array([0.4]))

    assert ScoreCounts.of(values).log_capital(0.4) == pytest.approx(capital[0], abs=1e-9)


def test_halved_cells_give_the_least_product_over_all_means():
    model = ScoreCounts.of(scores(1, 2, 8))
    retrain = ScoreCounts.of(scores(2, 2, 8, n=90))

    found = log_e_scores_forgot(model, [retrain], 0.1)

    alone = model.log_capital(0.1)
    least = np.logaddexp(alone, least_on_a_grid(model, retrain, 0.1)) - math.log(2)
    assert least - CORNERS - 1e-4 <= found <= least


@pytest.mark.parametrize(("log_e", "rises"), [(log_e_scores_forgot, 1), (log_e_scores_leak, -1)])
def test_evidence_is_ordered_in_the_tolerance(log_e, rises):
    model, retrain = ScoreCounts.of(scores(3, 2, 6, n=60)), ScoreCounts.of(scores(4, 2, 6, n=40))

    values = [log_e(model, [retrain], tolerance) for tolerance in np.linspace(-0.3, 0.5, 9)]

    assert (rises * np.diff(values) >= -2 * CORNERS).all()


def test_several_retrains_take_the_mean_and_the_least():
    model = ScoreCounts.of(scores(5, 2, 3))
    retrains = [ScoreCounts.of(scores(seed, 2, 9)) for seed in (6, 7)]

    single = [log_e_scores_leak(model, [retrain], 0.1) for retrain in retrains]

    assert log_e_scores_leak(model, retrains, 0.1) == min(single)


def test_without_retrain_scores_prove_no_leak():
    assert log_e_scores_leak(ScoreCounts.of(np.ones(500)), [], 0.1) == -math.inf


@pytest.mark.seconds
def test_evidence_at_the_edge_is_rarely_false_however_often_anybody_looks():
    """Means exactly the tolerance apart, four looks of 32 answers."""
    rng = np.random.default_rng(110)
    runs = 20
    goal = math.log(20)
    false = np.zeros(2)
    for _ in range(runs):
        model, retrain = rng.beta(2.5, 7.5, 128), rng.beta(1.5, 8.5, 128)
        hit = np.zeros(2, dtype=bool)
        for n in range(32, 129, 32):
            sides = ScoreCounts.of(model[:n]), [ScoreCounts.of(retrain[:n])]
            hit |= [
                log_e_scores_forgot(*sides, 0.1) >= goal,
                log_e_scores_leak(*sides, 0.1) >= goal,
            ]
        false += hit
    assert (false / runs <= tolerated(0.05, runs)).all()
