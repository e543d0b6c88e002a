"""Metrics from likelihoods of tables small enough to count by hand."""

import statistics

import pandas as pd
import pytest

from lethe.measure.likelihood_metrics import ATTACKS, against_retrain, likelihood_metrics
from lethe.statistics.bound import Covers
from tests.lethe.verdict.deciding import made, of_model

NAN = float("nan")


def measures(split, truth_ratio, mia=None, **columns):
    rows = len(truth_ratio)
    table = {"prompt_id": [f"{split}-{i}" for i in range(rows)], "truth_ratio": truth_ratio}
    for name in ("probability", "choice_probability", "extraction_strength", "exact_memorisation"):
        table[name] = [0.5] * rows
    for attack in ATTACKS:
        table[attack] = [0.0] * rows if mia is None else mia
    return pd.DataFrame({**table, **columns})


def of_likelihoods(*arguments):
    return of_model(made(likelihood_metrics, *arguments))


def of_comparison(*arguments):
    return of_model(made(against_retrain, *arguments)).values


def texts(split, recalls):
    rows = [
        (f"{split}-{i}", sample, value) for i, value in enumerate(recalls) for sample in (-1, 0)
    ]
    table = pd.DataFrame(rows, columns=["prompt_id", "sample", "rouge_l"])
    table.loc[table["sample"] == 0, "rouge_l"] = 0.0  # utility is of the greedy answers
    return table


def test_model_utility_of_the_sets_there_are():
    likelihoods = {
        "forget": measures("forget", [0.5, 2.0]),
        "retain": measures("retain", [0.25, NAN], probability=[0.8, 0.6]),
        "world": measures(
            "world", [0.5, 0.5], probability=[0.1, 0.1], choice_probability=[1.0, NAN]
        ),
    }
    scores = {"retain": texts("retain", [1.0, 0.5]), "world": texts("world", [0.5, NAN])}
    got = of_likelihoods(likelihoods, scores, 0.05).values
    assert got["model_utility"] == pytest.approx(
        statistics.harmonic_mean([0.7, 0.75, 0.75, 1.0, 0.5, 0.5])
    )
    assert got["model_utility_terms"] == 6
    assert got["world_probability"] == 1.0
    assert (
        got["retain_truth_missing"],
        got["world_probability_missing"],
        got["world_rouge_missing"],
    ) == (1, 1, 1)
    assert got["forget_truth_ratio"] == 0.5
    assert not any(key.startswith("mia") for key in got)


def test_a_set_without_wrong_answers_is_no_part_of_utility():
    likelihoods = {"forget": measures("forget", [NAN]), "retain": measures("retain", [NAN])}
    got = of_likelihoods(likelihoods, {"retain": texts("retain", [1.0])}, 0.05).values
    assert got["model_utility"] is None
    assert got["model_utility_terms"] == 0
    assert got["forget_truth_ratio"] is None
    assert got["forget_truth_ratio_missing"] == 1


def test_membership_is_the_forget_set_against_the_held_out_one():
    forget = measures("forget", [1.0] * 3, mia=[3.0, 4.0, NAN])
    heldout = measures("heldout", [1.0] * 2, mia=[1.0, 2.0])
    got = of_likelihoods({"forget": forget, "heldout": heldout}, {}, 0.05).values
    for attack in ATTACKS:
        assert got[f"{attack}_auc"] == 1
        assert got[f"{attack}_auc_low"] == pytest.approx((0.05 / 2) ** (1 / 2), abs=1e-9)
    bounds = of_likelihoods({"forget": forget, "heldout": heldout}, {}, 0.05).bounds
    for key, bound in bounds.items():
        assert (bound.value, bound.side) == (got[key], "lower" if key.endswith("_low") else "upper")
        assert (bound.alpha, bound.covers, bound.n) == (
            0.025,
            Covers.HELD_OUT,
            2,
        )  # half of alpha each
    assert len(bounds) == 2 * len(ATTACKS)
    heldout[list(ATTACKS)] = NAN
    assert (
        of_likelihoods({"forget": forget, "heldout": heldout}, {}, 0.05).values["mia_loss_auc"]
        is None
    )


def test_a_model_that_remembers_is_told_from_retrain():
    def tables(ratios, mia):
        return {
            "forget": measures("forget", ratios, mia),
            "heldout": measures("heldout", [1.0] * 4, [-2.0] * 4),
        }

    got = of_comparison(tables([0.1] * 20, [-1.0] * 20), tables([0.9] * 20, [-2.0] * 20), 0.05)
    assert got["forget_quality"] < 1e-9
    assert got["forget_ks"] == 1
    assert got["mia_reference_auc"] == 1
    assert got["privleak"] == -100


def test_what_is_missing_is_left_out_and_counted():
    model = {"forget": measures("forget", [0.1, NAN, 0.3])}
    got = of_comparison(model, {"forget": measures("forget", [0.1, 0.2, 0.3])}, 0.05)
    assert got["forget_quality_missing"] == 1
    assert "mia_reference_auc" not in got
    got = of_comparison({"forget": measures("forget", [NAN])}, model, 0.05)
    assert got["forget_quality"] is None
    assert got["forget_quality_missing"] == 1
