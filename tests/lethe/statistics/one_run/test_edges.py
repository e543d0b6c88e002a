"""The one-run audit: its edges, every oracle, closed forms, and levels that hold where the assumptions do."""

import json
import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from lethe.registry import ONE_RUN_METHODS
from lethe.statistics.one_run.audit import POINTS, audit, log_p_value, p_value_curve
from lethe.statistics.one_run.channel import approx_dp, gaussian, laplace, subsampled_gaussian
from lethe.statistics.one_run.counts import Counts, release
from lethe.statistics.one_run.methods import lower_bound
from lethe.statistics.one_run.tradeoff import Atoms, from_losses, from_tradeoff
from tests.lethe.statistics.one_run.calibration import (
    ALPHA,
    PRODUCT,
    SHARED,
    chosen_afterwards,
    false_rejections,
    product_setting,
    shared_setting,
    tolerated,
    wrong,
)
from tests.lethe.statistics.one_run.calibration import gaussian as gaussian_guesses

FAMILIES = {
    "gaussian": gaussian(),
    "laplace": laplace(),
    "approx-dp": approx_dp(1e-5),
    "subsampled-gaussian": subsampled_gaussian(0.5),
}


def test_delta_0():
    """No Gaussian is (epsilon, 0)-DP: a rejected one has an infinite epsilon, and the note says so."""
    infinite = audit(Counts(1000, 200, 26), gaussian(), delta=0, methods=["exact"])[0]
    assert infinite.epsilon_lower == math.inf
    assert infinite.note.startswith("epsilon is infinite")
    assert audit(Counts(1000, 200, 90), gaussian(), delta=0, methods=["exact"])[0].epsilon_lower == 0
    pure = {result.method: result.epsilon_lower for result in audit(Counts(1000, 200, 26), laplace(), delta=0)}
    assert 0 < pure["steinke"] <= pure["exact"] * (1 + 1e-9) < math.inf


def test_infinite_scores_are_the_first_and_the_last_released():
    bits, guesses = np.array([0, 1, 0, 1]), np.array([1, 1, 0, 0])
    counts = release(bits, guesses, np.array([-np.inf, 5.0, np.inf, -np.inf]), 2)
    assert (counts.errors, counts.negatives, counts.false_positives) == (0, 1, 0)


@pytest.mark.parametrize("order", ["wrong ones first", "wrong ones last"])
def test_ties_at_the_cut_are_drawn_alike_wherever_they_stand(order):
    """6 guesses above the cut, all right; 20 tied, 10 of them wrong, 8 released: 4 wrong on average."""
    wrong = np.array([True] * 10 + [False] * 10)
    wrong = wrong if order == "wrong ones first" else wrong[::-1]
    bits = np.zeros(36, dtype=int)
    guesses = np.concatenate([np.zeros(6), wrong, np.ones(10)]).astype(int)
    scores = np.concatenate([np.full(6, 3.0), np.full(20, 2.0), np.full(10, 1.0)])
    errors = [release(bits, guesses, scores, 14, seed).errors for seed in range(1000)]
    deviation = math.sqrt(8 * 0.25 * 12 / 19)  # hypergeometric
    assert abs(np.mean(errors) - 4) < 4 * deviation / math.sqrt(len(errors))
    assert np.var(errors) == pytest.approx(deviation**2, rel=0.2)


def test_a_family_rejected_whole():
    """Kept with probability .05, forty bits cannot all be guessed, however strong the mechanism."""
    audited = audit(Counts(40, 40, 0), subsampled_gaussian(0.05), delta=1e-5)
    results = {result.method: result for result in audited}
    for name in ("exact", "chernoff", "mahloujifar", "independent"):
        assert results[name].epsilon_lower is None
        assert results[name].note.startswith("family rejected")
    assert 0 < results["steinke"].epsilon_lower < math.inf  # has no family


@pytest.mark.parametrize("name", FAMILIES)
def test_the_bound_itself_is_rejected(name):
    """The lower end of the bracket around the least private rejected member is reported, never the upper end."""
    counts, found = Counts(300, 100, 20), 0
    for result in audit(counts, FAMILIES[name], delta=1e-5):
        if result.parameter:
            log_p = log_p_value(result.method, counts, FAMILIES[name], result.parameter, 1e-5)
            assert log_p <= math.log(0.05)
            assert log_p > math.log(0.05) - 1e-6
            found += 1
    assert found


METHOD = {
    "exact_mixture": "exact",
    "seed_chernoff": "chernoff",
    "steinke2023": "steinke",
    "mahloujifar2024": "mahloujifar",
}


def family(case):
    params = case["null_params"]
    return {
        "gaussian": lambda: gaussian(),
        "laplace": lambda: laplace(),
        "eps_delta": lambda: approx_dp(params.get("delta0", case["delta"])),
        "sgm": lambda: subsampled_gaussian(params.get("q")),
    }[case["family"]]()


def null(case):
    return case["null_params"].get("mu", case["null_params"].get("eps"))


def cases(shared):
    return json.loads((shared / "oracles/one-run-audit.json").read_text())["cases"]


def test_every_p_value(shared):
    checked = 0
    for case in cases(shared):
        counts, method = Counts(case["n"], case["r"], case["u"]), METHOD[case["method"]]
        if case["family"] == "atoms":
            pair = Atoms(np.array(case["null_params"]["P"]), np.array(case["null_params"]["Q"]))
            got = ONE_RUN_METHODS[method].log_p_value(counts, pair)
        else:
            got = log_p_value(method, counts, family(case), null(case), case["delta"])
        expected = case.get("log_p_value", math.log(case["p_value"]))
        assert got == pytest.approx(expected, rel=case["rtol"], abs=case["rtol"]), case["id"]
        checked += 1
    assert checked == 60


@pytest.mark.slow
def test_every_epsilon(shared):
    for case in cases(shared):
        if "eps_lower" not in case:
            continue
        counts = Counts(case["n"], case["r"], case["u"])
        result = audit(
            counts, family(case), delta=case["delta"], alpha=case["alpha"], methods=[METHOD[case["method"]]]
        )[0]
        if case["eps_lower"] is None:
            assert result.epsilon_lower is None, case["id"]
            assert "family rejected" in result.note
        else:
            expected = math.inf if case["eps_lower"] == "inf" else case["eps_lower"]
            assert result.epsilon_lower == pytest.approx(expected, rel=case["rtol"], abs=1e-9), case["id"]


def test_closed_forms():
    def p(n, r, u, f, at, delta=1e-5):
        return math.exp(log_p_value("exact", Counts(n, r, u), f, at, delta))

    assert p(1, 1, 0, laplace(), 1.0) == pytest.approx(1 - math.exp(-0.5) / 2)
    assert p(50, 50, 12, gaussian(), 1.0) == pytest.approx(binom.cdf(12, 50, ndtr(-0.5)))
    assert p(10, 10, 0, approx_dp(0.1), 0.0) == pytest.approx(((1 + 0.1) / 2) ** 10)
    assert p(90, 40, 9, approx_dp(0.0), 1.0) == pytest.approx(binom.cdf(9, 40, 1 / (1 + math.e)))
    assert p(90, 40, 40, gaussian(), 1.0) == pytest.approx(1)


@pytest.mark.parametrize("points", [(0.0, 0.2, 0.5, 0.9, 1.0), (0.1, 0.4, 0.7), (0.3, 1.0)])
def test_a_curve_between_points_is_bracketed(points):
    """One side lies below and one above every convex curve through the points, such as a Gaussian's."""

    points, x = np.array(points), np.linspace(0, 1, 101)
    values, true = ndtr(-ndtri(points) - 1), ndtr(-ndtri(x) - 1)
    null = from_tradeoff(points, values)
    below, above = (np.interp(x, np.cumsum(side.p), 1 - np.cumsum(side.q)) for side in (null, null.above))
    assert (below <= true + 1e-9).all()
    assert (above >= true - 1e-9).all()
    assert np.interp(points, x, above) == pytest.approx(values)
    chord = 0 if points[0] > 0 else 1  # which bounds the curve at 0
    slope = np.diff(values)[chord] / np.diff(points)[chord]
    assert below[0] == pytest.approx(values[chord] - slope * points[chord])


def test_privacy_losses_are_atoms_again():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    pair = from_losses(np.log(q / p), q, 0.0, np.log(p / q), p, 0.0)
    assert (pair.p.sum(), pair.q.sum()) == pytest.approx((1, 1))
    for delta in (0.0, 0.1, 0.25):
        assert pair.epsilon(delta) == pytest.approx(Atoms(p, q).epsilon(delta))


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


def test_r_chosen_after_the_fact_breaks_the_level_and_declared_r_keep_it():
    shares = chosen_afterwards(500)
    assert shares["best of five"] > tolerated(ALPHA, 500)
    assert shares["declared, each at alpha / 5"] <= tolerated(ALPHA, 500)


def test_clopper_pearson_on_independent_guesses():
    """Guessing by one threshold, the Gaussian with mu = 1 is as private as the odds of its errors say."""
    truth = math.log(ndtr(0.5) / ndtr(-0.5))
    rng, missed = np.random.default_rng(5), 0
    for _ in range(1000):
        drawn = gaussian_guesses(200, rng, mu=1.0, guess="threshold")
        counts = release(drawn.bits, drawn.guesses, drawn.scores, 200)
        missed += lower_bound(counts, 0.0, ALPHA) > truth
    assert missed / 1000 <= tolerated(ALPHA, 1000)


def test_a_curve_without_results_reaches_a_quarter_beyond_1():
    curve = p_value_curve([], FAMILIES["gaussian"], [], 1e-5, None)
    assert len(curve) == POINTS
    assert curve[-1]["mu"] == 1.25
