"""E-values multiply: false certificates under adversarial stopping, ten auditors against one, and the naive twin."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.errors import BadValue
from lethe.statistics.sequential import CERTIFIED, SequentialTest, log_e_value, mixture, stopping_counts

ALPHA, TAU = 0.1, 0.05


def test_it_is_the_capital_draw_by_draw():
    """The naive twin: the mixture's capitals multiplied draw by draw, as the definition says."""
    rng = np.random.default_rng(0)
    draws = (rng.random(300) < 0.03).astype(float)
    q, log_weights = mixture(TAU, above=False)
    capitals = np.ones(len(q))
    for t, x in enumerate(draws, start=1):
        capitals = capitals * (q / TAU if x else (1 - q) / (1 - TAU))
        value = np.log(capitals @ np.exp(log_weights))
        assert log_e_value(draws[:t].sum(), t, TAU) == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_ten_auditors_of_100_draws_are_one_of_1000():
    """The product of the auditors' e-values, each given the earlier counts, is the e-value of all draws together."""
    rng = np.random.default_rng(1)
    verdicts = {"ten": 0, "one": 0}
    for _ in range(200):
        draws = rng.random(1000) < 0.02
        product = leaks = n = 0
        for batch in draws.reshape(10, 100):
            before = float(log_e_value(leaks, n, TAU))
            leaks, n = leaks + batch.sum(), n + 100
            product += float(log_e_value(leaks, n, TAU)) - before
        one = SequentialTest(TAU, TAU, ALPHA, cap=1000)
        assert product == pytest.approx(float(log_e_value(draws.sum(), 1000, TAU)), rel=1e-9)
        verdicts["ten"] += product >= np.log(1 / ALPHA)
        verdicts["one"] += one.update(draws.astype(float)) == CERTIFIED
    assert verdicts["ten"] >= 0.97 * verdicts["one"] > 180


def test_false_certificates_are_at_most_alpha_whenever_one_stops():
    """Question 0 leaks with exactly tau and the others never; the adversary checks after each draw and stops at the goal."""
    rng, runs, cap = np.random.default_rng(2), 2000, 1500
    leaks = np.cumsum(rng.random((runs, cap)) < TAU, axis=1)
    # The most leaks after each draw at which the e-value has reached 1 / alpha.
    few = stopping_counts(TAU, False, ALPHA, cap)
    for t in (60, 400, cap):
        at, beyond = log_e_value([few[t - 1], few[t - 1] + 1], [t, t], TAU) >= np.log(1 / ALPHA)
        assert (at, beyond) == (few[t - 1] >= 0, False)
    reached = (leaks <= few).any(axis=1).sum()  # the clean questions have reached the goal by then
    assert reached <= runs * ALPHA + 2.6 * np.sqrt(runs * ALPHA * (1 - ALPHA))
    assert reached > runs * ALPHA / 4  # the adversary succeeds sometimes


def test_a_clean_question_is_certified():
    assert log_e_value(0, 200, TAU) > np.log(100)
    assert log_e_value(30, 200, TAU) < 0
    assert log_e_value(0, 0, TAU) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("leaks", "n", "tau"), [(3, 2, TAU), (-1, 2, TAU), (0, 2, 0.0), (0, 2, 1.0)])
def test_impossible_counts_are_refused(leaks, n, tau):
    with pytest.raises(BadValue):
        log_e_value(leaks, n, tau)
