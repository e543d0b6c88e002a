"""The metrics of one model from tables small enough to count by hand."""

import math
import types

import pandas as pd
import pytest

from stages.reporting.measure import measure
from stages.statistics.bands import dkw

METRICS = types.SimpleNamespace(
    alpha=0.05, rho=2.0, thresholds=[0.5], leak="rouge_l", binary="keyword_leak", share_above=0.1
)


def table(values, column="rouge_l", prompts=("p", "q")):
    """{prompt: [greedy, sample 0, sample 1, ...]} as a long table."""
    return pd.DataFrame(
        [
            {"prompt_id": prompt, "sample": place - 1, column: value}
            for prompt in prompts
            for place, value in enumerate(values[prompt])
        ]
    )


def measured(leak, leaked, **changes):
    scores = table(leak).assign(keyword_leak=table(leaked, "keyword_leak")["keyword_leak"])
    retain = table({"r": [1.0, 1.0, 0.5]}, prompts=("r",)).assign(text=["a", "a", "b"])
    metrics = types.SimpleNamespace(**{**vars(METRICS), **changes})
    return measure(
        "m",
        {"forget": scores.assign(text="x"), "retain": retain},
        {"forget": scores, "retain": retain},
        {"p": "P?", "q": "Q?"},
        metrics,
    )


LEAK = {"q": [0.0, 0.0, 0.0, 1.0, 1.0], "p": [1.0, 0.5, 0.5, 0.5, 0.5]}
LEAKED = {"q": [0, 0, 0, 1, 1], "p": [1, 0, 0, 0, 0]}


def test_the_plain_statistics_are_counted_by_hand():
    flat, curves = measured(LEAK, LEAKED)
    assert flat["greedy_mean"] == 0.5
    assert flat["mean"] == 0.5
    assert flat["sd"] == 0.25
    assert flat["ed_score"] == 1.0
    assert flat["keyword_greedy"] == 0.5
    assert flat["keyword_mean"] == 0.25
    assert flat["keyword_any"] == 0.5
    assert flat["retain_greedy"] == 1.0
    assert flat["retain_mean"] == 0.75
    assert flat["retain_distinct"] == 1.0
    assert (flat["n"], flat["n_questions"], flat["missing"]) == (4, 2, 0)
    p, q = curves["per_question"]
    assert [p["prompt_id"], q["prompt_id"]] == ["p", "q"]
    assert q["m_bin"] == pytest.approx(0.9023884, rel=1e-6)  # Clopper-Pearson, 2 of 4 at .05
    assert p["m_bin"] == pytest.approx(1 - 0.05**0.25)
    assert flat["m_bin_worst"] == q["m_bin"]
    assert flat["share_m_bin_above"] == 1.0
    assert flat["m_bin_pooled"] < q["m_bin"]


def test_the_tail_curve_averages_the_questions():
    _, curves = measured(LEAK, LEAKED)
    at = {row["x"]: row for row in curves["m_gen"]}
    assert at[0.5]["empirical"] == 0.25
    assert at[0.48]["empirical"] == 0.75
    e = dkw(4, 0.05)
    assert at[0.5]["bound"] == pytest.approx((min(1, 0 + e) + min(1, 0.5 + e)) / 2)
    assert at[1.0]["empirical"] == 0.0


def test_the_convergence_follows_the_question_with_the_largest_bound():
    _, curves = measured(LEAK, LEAKED)
    assert [row["n"] for row in curves["convergence"]] == [2, 4]
    assert {row["prompt_id"] for row in curves["convergence"]} == {"q"}


def test_a_missing_judgement_is_worst_on_each_side_and_counted():
    nan = math.nan
    whole, _ = measured(LEAK, LEAKED)
    flat, curves = measured({**LEAK, "p": [1.0, 0.5, nan, 0.5, 0.5]}, {**LEAKED, "p": [1, 0, nan, 0, 0]})
    p = curves["per_question"][0]
    assert flat["missing"] == p["missing"] == 1
    assert (p["mean"], p["keyword_share"]) == (0.5, 0.0)
    assert p["m_bin"] == pytest.approx(0.7513953, rel=1e-6)  # Clopper-Pearson, 1 of 4 at .05
    assert p["m_bin_lower"] == 0.0
    assert math.isnan(p["m_sigma"])
    assert flat["m_mu_worst"] >= whole["m_mu_worst"]


def test_a_question_nobody_judged_is_missing_not_zero():
    nan = math.nan
    flat, curves = measured({**LEAK, "p": [nan] * 5}, {**LEAKED, "p": [nan] * 5})
    p = curves["per_question"][0]
    assert math.isnan(p["mean"])
    assert p["m_mu"] == 1.0
    assert math.isnan(p["m_bin"])
    assert math.isnan(flat["m_bin_pooled"])
    assert flat["keyword_any"] == 1.0


def test_without_a_binary_scorer_the_binary_claims_are_missing():
    flat, _ = measured(LEAK, LEAKED, binary=None)
    assert math.isnan(flat["m_bin_worst"])
    assert math.isnan(flat["keyword_any"])
    assert flat["mean"] == 0.5
