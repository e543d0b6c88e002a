"""Questions that stop early, are judged, or are asked for their answers; averages keep their levels, rows come back."""

import dataclasses
import math
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe import config
from lethe.config.evaluating import Metrics
from lethe.measure.answers import BINS, question_answers, scored
from lethe.measure.likelihood_metrics import ATTACKS, against_retrain, likelihood_metrics
from lethe.measure.measure import measure_stopped
from lethe.measure.prompts import SHOWN_QUERIES, MeasureSettings, measure_prompts
from lethe.measure.run import Model, tails
from lethe.measure.scores import as_prompts
from lethe.results import table
from lethe.results.exact_bounds import Excess, certificates_of, rows_of
from lethe.results.table import Results
from lethe.sampling.engine import AnswerStore, Prompt, Settings
from lethe.sampling.tasks import Task, draw_sequentially
from lethe.scoring import scorer
from lethe.statistics.answer_tree import AgainstRetrain, Masses, Remainder, Rounding
from lethe.statistics.bound import Covers, Interval
from lethe.statistics.judge_error import Calibration
from lethe.statistics.many_prompts import share_interval
from lethe.statistics.sequential import Decision
from lethe.verdict.claims import (
    METHOD,
    _both,
    judged_exactly,
    mean_leak_interval,
    share_that_leaks,
)
from tests.lethe.measure.test_measure import LEAK, LEAKED, stopped
from tests.lethe.measure.test_measure import rows_of as measured_rows
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import write_run
from tests.lethe.sampling.test_tasks import ITEMS, RULE, Told
from tests.lethe.verdict.deciding import certified, made, of_model, of_questions
from tests.small import ROOT

METRICS = Metrics(
    alpha=0.01,
    rho=2.0,
    leak="keyword_leak",
    binary="keyword_leak",
    thresholds=[0.5],
    share_above=0.1,
)
CAP, NAMES = 200, ("clean", "leaky", "between")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    task = Task(
        "forget",
        [Prompt(name, (1, 2)) for name in NAMES],
        Settings(n=CAP, max_new_tokens=4, seed=1),
    )
    store = AnswerStore("m", "told", tmp_path_factory.mktemp("store"))
    answers, decisions = draw_sequentially(task, ITEMS, Told(), store, RULE, "")
    judge = scorer("keyword_leak")
    leaks = np.concatenate(
        [
            judge(list(rows["text"]), ITEMS[name])
            for name, rows in answers.groupby("prompt_id", sort=False)
        ]
    )
    scores = answers[["prompt_id", "sample"]].assign(keyword_leak=leaks)
    return answers, scores, {row.pop("prompt_id"): Decision(**row) for row in decisions}


@pytest.fixture(scope="module")
def rows(drawn):
    answers, scores, decisions = drawn
    return measure_stopped(
        "m", {"forget": answers}, {"forget": scores}, METRICS, decisions, "keyword_leak"
    )


def test_the_verdicts_come_with_bounds_that_agree(rows):
    found = {name: own.values for name, own in of_questions(rows).items()}
    assert {name: row["verdict"] for name, row in found.items()} == {
        "clean": "certified",
        "leaky": "leaks",
        "between": "undecided",
    }
    assert found["clean"]["anytime_upper"] <= RULE.tau
    assert found["leaky"]["anytime_lower"] >= RULE.tau_leak
    assert found["between"]["anytime_lower"] < RULE.tau_leak
    assert found["between"]["anytime_upper"] > RULE.tau
    for row in found.values():
        assert row["anytime_lower"] <= row["anytime_upper"]
        assert 0 <= row["anytime_sd_upper"] <= 1


MODEL = Model("m", "subject", "m")
RANKING = ("keyword_leak", "rouge_l")


def model(rows: list[tuple]) -> Model:
    columns = ["prompt_id", "sample", "text", "keyword_leak", "rouge_l"]
    return replace(MODEL, answers={"forget": pd.DataFrame(rows, columns=columns)})


SCORES = {text: (leak, rouge) for text, leak, rouge in [
    ("a", 1.0, 0.5), ("b", 0.0, 0.5), ("c", 0.0, 0.0), ("d", 1.0, np.nan), ("e", np.nan, np.nan), ("f", 1.0, 0.5)
]}  # fmt: skip
DRAWS = st.lists(
    st.tuples(st.sampled_from(["q2", "q1", "q3"]), st.sampled_from(sorted(SCORES))),
    min_size=1,
    max_size=40,
)


@given(DRAWS, st.integers(0, 4))
def test_the_worst_answers_are_those_of_a_naive_search(draws, most):
    rows = [
        (question, sample, text, *SCORES[text]) for sample, (question, text) in enumerate(draws)
    ]
    found = question_answers(
        model([("q1", -1, "a", 1.0, 0.5), *rows]).answers, RANKING, "rouge_l", most
    )
    for question in {question for question, _ in draws}:
        texts = [text for asked, text in draws if asked == question]
        first = {
            text: next(row[1] for row in rows if row[0] == question and row[2] == text)
            for text in set(texts)
        }
        leaking = [text for text in first if np.nan_to_num(SCORES[text]).max() > 0]
        order = sorted(
            leaking,
            key=lambda text: (*(-np.nan_to_num(SCORES[text])), -texts.count(text), first[text]),
        )
        told = found[question]
        assert told.drawn == len(texts)
        assert [answer.text for answer in told.worst] == order[:most]
        for answer in told.worst:
            assert (answer.times, answer.first) == (texts.count(answer.text), first[answer.text])
            assert answer.greedy == (question == "q1" and answer.text == "a")
            assert [value is None for value in answer.scores] == [
                bool(np.isnan(s)) for s in SCORES[answer.text]
            ]


@given(
    st.lists(
        st.one_of(st.just(np.nan), st.floats(0, 1), st.sampled_from(np.linspace(0, 1, BINS + 1))),
        max_size=50,
    )
)
def test_the_histogram_is_that_of_numpy(scores):
    rows = [("q", sample, "t", 0.0, score) for sample, score in enumerate([*scores, 0.5])]
    found = question_answers(model(rows).answers, RANKING, "rouge_l", 0)["q"]
    values = np.array([*scores, 0.5])
    expected = np.histogram(values[~np.isnan(values)], bins=np.linspace(0, 1, BINS + 1))[0]
    assert list(found.histogram) == expected.tolist()


ALPHA = 0.01
SAMPLES = "Clopper-Pearson, pooled"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root, models = tmp_path_factory.mktemp("run"), config.read_yaml(ROOT / "params.yaml")["models"]
    write_run(root, 3, 64, models={name: models[name] for name in ("base", "retrain", "npo")})
    return load(root)


def with_exact(run, **exact):
    models = [dataclasses.replace(model, exact=exact.get(model.name)) for model in run.models]
    return dataclasses.replace(run, models=models)


def interval(run, name="npo", alpha=ALPHA):
    model = next(model for model in run.models if model.name == name)
    return share_that_leaks(model, "keyword_leak", alpha, judged_exactly(run.params))


@pytest.mark.parametrize("rho", [10.0, 1000.0])
@pytest.mark.parametrize("leaks", [0, 3])
def test_each_source_takes_half_the_level_whatever_came_out(run, rho, leaks):
    found = certified(run.forget, 0.03, 0.9, rho, leaks)
    joined = with_exact(run, npo=found)
    model = next(model for model in joined.models if model.name == "npo")
    sampled = share_interval(scored(model.answers, "forget", "keyword_leak"), ALPHA / 2)
    exact = mean_leak_interval(
        [(tree.masses, tree.remainder) for tree in found.trees],
        [tree.lower for tree in found.trees],
        ALPHA / 2,
    )
    own = interval(joined)
    assert (own.lower, own.upper) == (
        max(sampled.lower, exact.lower),
        min(sampled.upper, exact.upper),
    )
    assert (own.alpha, own.method) == (ALPHA, METHOD)
    assert {bound.alpha for bound in own.bounds()} == {ALPHA / 2}
    assert sampled.assumes in own.assumes
    assert exact.assumes in own.assumes


def test_ends_that_exclude_each_other_give_an_interval():
    def of(lower, upper):
        return Interval((lower + upper) / 2, lower, upper, 100, ALPHA / 2, "made up")

    for first, second in (
        ((0.1, 0.2), (0.3, 0.4)),
        ((0.3, 0.4), (0.1, 0.2)),
        ((0.1, 0.4), (0.2, 0.3)),
    ):
        found = _both(of(*first), of(*second), ALPHA)
        assert second[0] <= found.lower <= found.upper <= second[1]


def test_it_needs_the_same_scorer_the_same_questions_and_probabilities_that_hold_elsewhere(run):
    sharp = certified(run.forget, 0.3, 0.6, 1e4)
    alone = interval(run)
    assert alone.method == SAMPLES
    assert interval(with_exact(run, npo=sharp)).method == METHOD
    for other in (None, run.params.exact.model_copy(update={"scorer": "exact_match"})):
        assert not judged_exactly(run.params.model_copy(update={"exact": other}))
    scorers = [{"keyword_leak": {"keyword_match": "substring"}}]
    score = run.params.score.model_copy(update={"scorers": scorers})
    assert not judged_exactly(run.params.model_copy(update={"score": score}))
    sample = run.params.sample.model_copy(update={"language": "flows/languages/wordings.yaml"})
    assert not judged_exactly(
        run.params.model_copy(update={"sample": sample})
    )  # the samples are of other prompts
    fewer = certified(list(run.forget)[1:], 0.3, 0.6, 1e4)
    rounded = certified(run.forget, 0.3, 0.6, 1e4, dtype="bfloat16", note="as computed here")
    unsampled = certified(run.forget, 0.3, 0.6, 0.0)
    for found in (fewer, rounded, unsampled):
        assert interval(with_exact(run, npo=found)) == alone  # at the whole level


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
    assert (lower, upper) == (
        model.bounds["leak_at_1000_worst_lower"],
        model.bounds["leak_at_1000_worst"],
    )
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
    (asked,) = (
        row for row in numbers.series("leak_at_k_worst", "judged") if row.at == SHOWN_QUERIES
    )
    assert model.asked(SHOWN_QUERIES) == (asked.lower_bound, asked.upper_bound)
