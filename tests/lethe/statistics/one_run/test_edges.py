"""The one-run audit: its edges, every oracle, closed forms, and levels that hold where the assumptions do."""

import json
import math

import numpy as np
import pytest
from scipy.special import ndtr

from lethe.errors import BadValue
from lethe.registry import ONE_RUN_METHODS
from lethe.statistics.one_run.audit import audit, log_p_value
from lethe.statistics.one_run.channel import approx_dp, gaussian, laplace, subsampled_gaussian
from lethe.statistics.one_run.counts import Counts, release
from lethe.statistics.one_run.methods import lower_bound
from lethe.statistics.one_run.tradeoff import Atoms
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
from tests.lethe.statistics.one_run.simulated_mechanisms import gaussian as gaussian_guesses

FAMILIES = {
    "gaussian": gaussian(),
    "laplace": laplace(),
    "approx-dp": approx_dp(1e-5),
    "subsampled-gaussian": subsampled_gaussian(0.5),
}


def by_method(counts, family, **options):
    return {result.method: result for result in audit(counts, family, delta=1e-5, **options)}


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((0, 0, 0), "n: got 0; must be a whole number from 1"),
        ((10**30, 5, 0), "n: got 10+; must be a whole number from 1 to 100000000"),
        ((10, 0, 0), "r: got 0; must be a whole number from 1 to n = 10"),
        ((10, 11, 0), "r: got 11; must be a whole number from 1 to n = 10"),
        ((10, 5, 6), "errors: got 6; must be a whole number from 0 to r = 5"),
        ((10, 5, -1), "errors: got -1"),
    ],
)
def test_impossible_counts(counts, said):
    with pytest.raises(BadValue, match=said):
        Counts(*counts)


@pytest.mark.parametrize("delta", [1, 1.5, -1e-9, math.nan])
def test_delta_outside_0_1(delta):
    with pytest.raises(BadValue, match=f"delta: got {delta}"):
        audit(Counts(10, 5, 0), gaussian(), delta=delta)


def test_delta_0():
    """No Gaussian is (epsilon, 0)-DP: a rejected one has an infinite epsilon, and the note says so."""
    infinite = audit(Counts(1000, 200, 26), gaussian(), delta=0, methods=["exact"])[0]
    assert infinite.value == math.inf
    assert infinite.note.startswith("epsilon is infinite at delta = 0")
    assert audit(Counts(1000, 200, 90), gaussian(), delta=0, methods=["exact"])[0].value == 0
    pure = {result.method: result.value for result in audit(Counts(1000, 200, 26), laplace(), delta=0)}
    assert 0 < pure["steinke"] <= pure["exact"] * (1 + 1e-9) < math.inf


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bits": [0, 1, 2]}, r"bits\[2\]: got 2; must be 0 or 1"),
        ({"bits": [0, math.nan, 1]}, r"bits\[1\]: got nan; must be 0 or 1"),
        ({"guesses": [0.5, 1, 0]}, r"guesses\[0\]: got 0.5; must be 0 or 1"),
        ({"scores": [1, math.nan, 0]}, r"scores\[1\]: got 'NaN'; must be a number.*score -inf"),
        ({"scores": [1, 2]}, r"scores: got 'shape \(2,\)'; must be one for each of the 3 bits"),
        ({"r": 4}, "r: got 4; must be a whole number from 1 to n = 3"),
        (
            {"scores": [-math.inf, 2, -math.inf]},
            "r: got 2; must be at most 1, the number of guesses \\(of 3\\) whose score is not -inf",
        ),
    ],
)
def test_broken_guesses(change, said):
    legal = {"bits": [0, 1, 0], "guesses": [0, 1, 1], "scores": [1.0, 2.0, 3.0], "r": 2}
    with pytest.raises(BadValue, match=said):
        release(**legal | change)


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
    results = by_method(Counts(40, 40, 0), subsampled_gaussian(0.05))
    for name in ("exact", "chernoff", "mahloujifar", "independent"):
        assert results[name].value is None
        assert results[name].note.startswith("family rejected: no member of subsampled-gaussian")
    assert 0 < results["steinke"].value < math.inf  # has no family


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
            assert result.value is None, case["id"]
            assert "family rejected" in result.note
        else:
            expected = math.inf if case["eps_lower"] == "inf" else case["eps_lower"]
            assert result.value == pytest.approx(expected, rel=case["rtol"], abs=1e-9), case["id"]


def test_closed_forms():
    def p(n, r, u, f, at, delta=1e-5):
        return math.exp(log_p_value("exact", Counts(n, r, u), f, at, delta))

    from scipy.special import ndtr
    from scipy.stats import binom

    assert p(1, 1, 0, laplace(), 1.0) == pytest.approx(1 - math.exp(-0.5) / 2)
    assert p(50, 50, 12, gaussian(), 1.0) == pytest.approx(binom.cdf(12, 50, ndtr(-0.5)))
    assert p(10, 10, 0, approx_dp(0.1), 0.0) == pytest.approx(((1 + 0.1) / 2) ** 10)
    assert p(90, 40, 9, approx_dp(0.0), 1.0) == pytest.approx(binom.cdf(9, 40, 1 / (1 + math.e)))
    assert p(90, 40, 40, gaussian(), 1.0) == pytest.approx(1)


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
