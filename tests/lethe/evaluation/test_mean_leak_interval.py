"""Averages of P(leak) and of utility keep their levels; what measures write as rows comes back as it was written."""

import math
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.evaluation.findings import mean_leak_interval
from lethe.evaluation.likelihood_metrics import ATTACKS, against_retrain, likelihood_metrics
from lethe.evaluation.prompts import SHOWN_QUERIES, MeasureSettings, measure_prompts
from lethe.evaluation.run import Model, tails
from lethe.evaluation.scores import as_prompts
from lethe.results import table
from lethe.results.exact_bounds import Excess, certificates_of, rows_of
from lethe.results.table import Results
from lethe.statistics.answer_tree import AgainstRetrain, Masses, Remainder, Rounding
from lethe.statistics.bound import Covers
from lethe.statistics.judge_error import Calibration
from tests.lethe.evaluation.deciding import certified, made, of_model, of_questions
from tests.lethe.evaluation.test_measure import LEAK, LEAKED, stopped
from tests.lethe.evaluation.test_measure import rows_of as measured_rows


@given(
    leak=st.floats(0, 0.4),
    clean=st.floats(0, 0.6),
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    rho=st.floats(1, 1e6),
    allowance=st.sampled_from([0.0, 1e-5, 1e-2]),
)
@settings(max_examples=100)
def test_the_interval_is_one_and_holds_the_certain_ends(leak, clean, counts, rho, allowance):
    masses, rounding = Masses((leak,), (clean,)), Rounding(allowance, 1)
    questions = [(masses, Remainder(rho, 1000, count)) for count in counts]
    got = mean_leak_interval(questions, [leak * 0.9] * len(counts), 0.01, rounding)
    assert 0 <= got.lower <= got.value <= got.upper <= 1 + 1e-9
    assert got.lower >= leak * 0.9 * (1 - 1e-12)
    assert got.n == 1000 * len(counts)
    lower, upper = got.bounds()
    assert (lower.alpha, upper.alpha) == (0.005, 0.005)


NAN = float("nan")


def measures(split, truth_ratio, mia=None, **columns):
    rows = len(truth_ratio)
    table = {"prompt_id": [f"{split}-{i}" for i in range(rows)], "truth_ratio": truth_ratio}
    for name in ("probability", "choice_probability", "extraction_strength", "exact_memorisation"):
        table[name] = [0.5] * rows
    for attack in ATTACKS:
        table[attack] = [0.0] * rows if mia is None else mia
    return pd.DataFrame({**table, **columns})


def of_likelihoods(*given):
    return of_model(made(likelihood_metrics, *given))


def of_comparison(*given):
    return of_model(made(against_retrain, *given)).values


def texts(split, recalls):
    rows = [(f"{split}-{i}", sample, value) for i, value in enumerate(recalls) for sample in (-1, 0)]
    table = pd.DataFrame(rows, columns=["prompt_id", "sample", "rouge_l"])
    table.loc[table["sample"] == 0, "rouge_l"] = 0.0  # utility is of the greedy answers
    return table


def test_model_utility_of_the_sets_there_are():
    likelihoods = {
        "forget": measures("forget", [0.5, 2.0]),
        "retain": measures("retain", [0.25, NAN], probability=[0.8, 0.6]),
        "world": measures("world", [0.5, 0.5], probability=[0.1, 0.1], choice_probability=[1.0, NAN]),
    }
    scores = {"retain": texts("retain", [1.0, 0.5]), "world": texts("world", [0.5, NAN])}
    got = of_likelihoods(likelihoods, scores, 0.05).values
    assert got["model_utility"] == pytest.approx(statistics.harmonic_mean([0.7, 0.75, 0.75, 1.0, 0.5, 0.5]))
    assert got["model_utility_terms"] == 6
    assert got["world_probability"] == 1.0
    assert (got["retain_truth_missing"], got["world_probability_missing"], got["world_rouge_missing"]) == (1, 1, 1)
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
    forget, heldout = (
        measures("forget", [1.0] * 3, mia=[3.0, 4.0, NAN]),
        measures("heldout", [1.0] * 2, mia=[1.0, 2.0]),
    )
    got = of_likelihoods({"forget": forget, "heldout": heldout}, {}, 0.05).values
    for attack in ATTACKS:
        assert got[f"{attack}_auc"] == 1
        assert got[f"{attack}_auc_low"] == pytest.approx((0.05 / 2) ** (1 / 2), abs=1e-9)
    bounds = of_likelihoods({"forget": forget, "heldout": heldout}, {}, 0.05).bounds
    for key, bound in bounds.items():
        assert (bound.value, bound.side) == (got[key], "lower" if key.endswith("_low") else "upper")
        assert (bound.alpha, bound.covers, bound.n) == (0.025, Covers.HELD_OUT, 2)  # half of alpha each
    assert len(bounds) == 2 * len(ATTACKS)
    heldout[list(ATTACKS)] = NAN
    assert of_likelihoods({"forget": forget, "heldout": heldout}, {}, 0.05).values["mia_loss_auc"] is None


def test_a_model_that_remembers_is_told_from_retrain():
    def tables(ratios, mia):
        return {"forget": measures("forget", ratios, mia), "heldout": measures("heldout", [1.0] * 4, [-2.0] * 4)}

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


RATIO = st.floats(0, 1e6) | st.just(math.inf)
SHARE = st.floats(0, 1)


def kept(rows: list[table.Result]) -> list[table.Result]:
    """Through a file."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "m.parquet")
        table.write(place, rows)
        return table.read_rows(place)


@given(st.lists(st.tuples(RATIO, SHARE, st.booleans()), min_size=1, max_size=4), RATIO)
def test_the_excess_over_retrain(rows, of_lowers):
    ratios, p_values, holds = zip(*rows, strict=True)
    names = tuple(f"q{place}" for place in range(len(rows)))
    against = AgainstRetrain(*map(np.array, (ratios, p_values, holds)), 10.0, 0.01, "Holm", "draws")
    excess = Excess(names, against, of_lowers)
    found = kept(made(excess.to_rows))
    rows = {name: own.row("excess", "exact") for name, own in of_questions(found).items()}
    assert {name: row.lower for name, row in rows.items()} == dict(zip(names, ratios, strict=True))
    values = of_model(found).values
    assert values["tree_above_retrain"] == sum(holds)
    assert values["tree_excess_median"] == excess.median


@pytest.mark.parametrize("rho", [0.0, 70.0])
def test_the_exact_bounds_with_their_trees(rho):
    found = certified(("a", "b"), 0.25, 0.5, rho, leaks=3 if rho else 0)
    rows = kept(rows_of(found))
    again = certificates_of(Results({"model": tuple(rows)}), "model")
    assert again.trees == found.trees
    assert (again.how, again.tau, again.skipped) == (found.how, found.tau, found.skipped)
    assert again.model.bounds == found.model.bounds
    question = of_questions(rows)["a"]
    for name in ("lower", "upper_certain", "lower_sampled", "upper"):
        assert question.bounds[f"tree_{name}"] == found.trees[0].bounds[name]
    assert certificates_of(Results({}), "model") is None


def test_a_model_of_the_table_has_its_curves_and_bands():
    rows = kept(measured_rows(LEAK, LEAKED))
    model = Model("m", "subject", "m", numbers=of_model(rows))
    assert [(point.x, point.empirical) for point in tails(model.numbers)][25] == (0.5, 0.25)
    lower, upper = model.asked(SHOWN_QUERIES)
    assert (lower, upper) == (model.bounds["leak_at_1000_worst_lower"], model.bounds["leak_at_1000_worst"])
    assert model.asked(3) is None
    assert model.calibration is model.epsilon_star is None
    assert not model.stopped
    assert Model("m", "subject", "m", numbers=of_model(kept(stopped()))).stopped


def test_what_is_kept_of_the_judge_is_enough_to_measure_again():
    judge = Calibration(leaks=60, leaks_called=54, clean=140, clean_called=7)
    verdicts = as_prompts({"a": [0.0] * 180 + [1.0] * 20, "b": [0.0] * 150 + [1.0] * 50})
    rows = kept(made(measure_prompts, verdicts, MeasureSettings(alpha=0.03, calibration=judge)))
    numbers, second = of_model(rows), of_questions(rows)["b"]
    model = Model("m", "subject", "m", numbers=numbers)
    assert model.calibration == judge
    assert model.bounds["judged_worst"].value == second.upper("leak", "judged").value
    first = numbers.series("leak_at_k_worst", "judged")[0]
    assert (first.at, first.upper, first.lower) == (
        1,
        model.values["judged_worst"],
        model.values["judged_worst_lower"],
    )
    assert (model.values["judge_labelled"], model.values["judge_fits"]) == (200, True)
    (asked,) = (row for row in numbers.series("leak_at_k_worst", "judged") if row.at == SHOWN_QUERIES)
    assert model.asked(SHOWN_QUERIES) == (asked.lower_bound, asked.upper_bound)
