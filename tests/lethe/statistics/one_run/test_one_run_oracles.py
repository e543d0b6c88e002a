"""The one-run audit against every required oracle, and the closed forms that need no file."""

import json
import math

import numpy as np
import pytest

from lethe.registry import ONE_RUN_METHODS
from lethe.statistics.one_run.audit import audit, log_p_value
from lethe.statistics.one_run.channel import approx_dp, gaussian, laplace, subsampled_gaussian
from lethe.statistics.one_run.counts import Counts
from lethe.statistics.one_run.tradeoff import Atoms

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


def test_known_epsilons():
    got = {r.method: r.value for r in audit(Counts(1000, 200, 26), gaussian(), delta=1e-5)}
    assert got["exact"] == pytest.approx(3.55287371981, rel=1e-7)
    assert got["chernoff"] == pytest.approx(3.25671363007, rel=1e-7)
    assert got["steinke"] == pytest.approx(1.5431205096, rel=3e-7)
    assert got["mahloujifar"] == pytest.approx(2.48070590225, rel=1e-7)
