"""Epsilon* of a mechanism: the mean over instances, Jensen's upper bound, and the permitted claims."""

import math

import numpy as np
import pytest

from lethe.errors import BadValue
from lethe.statistics.epsilon_star.lower import mechanism_epsilon, rates
from lethe.statistics.epsilon_star.ratios import empirical_epsilon_star
from tests.lethe.statistics.epsilon_star.coverage import from_rates


def instances(count, shift, n=400, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.random(n), rng.random(n) + shift) for _ in range(count)]


def naive(models, delta):
    """FNR averaged at equal FPR = j / k, thresholds read off the sorted population of each model."""
    k = min(len(population) for _, population in models)
    points = []
    for j in range(1, k + 1):
        fpr, fnr = [], []
        for train, population in models:
            tau = np.sort(population)[math.ceil(j / k * len(population) - 1e-9) - 1]
            fpr.append(np.mean(population <= tau))
            fnr.append(np.mean(train > tau))
        points.append((np.mean(fpr), np.mean(fnr)))
    return from_rates(*zip(*points, strict=True), delta)


def test_the_mean_equals_its_naive_twin():
    models = [*instances(2, 0.3, n=40), *instances(2, 0.2, n=60, seed=1)]
    assert mechanism_epsilon(models, 0.01).value == pytest.approx(naive(models, 0.01))


def test_one_instance_is_epsilon_star_at_its_populations_thresholds():
    [(train, population)] = instances(1, 0.2)
    fpr, fnr = rates([(train, population, population)])
    assert mechanism_epsilon([(train, population)], 0.01).value == from_rates(fpr[0], fnr[0], 0.01)


@pytest.mark.parametrize("seed", range(5))
def test_theorem_two(seed):
    """eps-bar is at most ln E[e^eps*]; with equal sizes both use thresholds from the population."""
    models = instances(5, 0.1, n=50, seed=seed)
    result = mechanism_epsilon(models, 0.05)
    assert result.value <= result.jensen_upper + 1e-12
    singles = [math.exp(empirical_epsilon_star(*model, 0.05).value) for model in models]
    assert result.jensen_upper == pytest.approx(math.log(np.mean(singles)))


def test_nothing_is_claimed_without_fresh_training_sets_or_with_too_few_instances():
    same = mechanism_epsilon(instances(8, 0.5), 0.01)
    assert same.lower is None
    assert "same training set" in same.reason
    few = mechanism_epsilon(instances(3, 0.5), 0.01, fresh_training_sets=True)
    assert few.lower is None
    assert "too few" in few.reason


def test_the_lower_bound_finds_a_large_leak_with_many_instances():
    result = mechanism_epsilon(instances(60, 0.8), 0.01, fresh_training_sets=True)
    assert 0.5 < result.lower < result.value


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_coverage_over_instances(shift):
    """The truth at the sampled thresholds is at most that of two uniforms a shift apart."""
    delta, alpha, runs = 0.01, 0.2, 60
    x = np.linspace(0, 1 + shift, 5001)
    tpr, fpr = np.clip(x, 0, 1), np.clip(x - shift, 0, 1)
    exact = from_rates(fpr, 1 - tpr, delta)
    values = [
        mechanism_epsilon(instances(16, shift, 30, seed), delta, alpha, fresh_training_sets=True, seed=seed).lower
        for seed in range(runs)
    ]
    assert np.mean(np.array(values) > exact) <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)


def test_no_instances_are_refused():
    with pytest.raises(BadValue, match="instances"):
        mechanism_epsilon([], 0.01)
