import json
import statistics
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.api.logs import tofu_log
from lethe.errors import BadFile, BadInput, BadValue
from lethe.results import table
from lethe.scoring.tofu import (
    BLOCKS,
    SECTIONS,
    differences,
    forget_quality,
    forget_truth,
    mean_term,
    model_utility,
    of_mean,
    of_quality,
    of_utility,
    read_log,
)
from lethe.statistics.two_sample import ks_test
from tests.cases import cases


def section(**changes) -> dict:
    rows = {
        "avg_gt_loss": {"0": 0.5, "1": 1.0},
        "avg_paraphrased_loss": {"0": 1.0, "1": 1.0},
        "average_perturb_loss": {"0": [2.0, 4.0], "1": [1.0, 1.0]},
        "generated_text": {"0": ["Who?", "It was Ron.", "Ron"], "1": ["Who?", "", "Ron"]},
        "rougeL_recall": {"0": 1.0, "1": 0},
    }
    return rows | changes


def write(folder, **changes):
    path = folder / "log.json"
    path.write_text(json.dumps({name: section(**changes) for name in SECTIONS.values()}))
    return path


def test_values_of_a_small_log(tmp_path):
    log = read_log(write(tmp_path))
    np.testing.assert_allclose(log["retain"].probability, np.exp([-0.5, -1.0]))
    weights = np.exp([-0.5, -2, -4])
    np.testing.assert_allclose(log["world"].probability, [weights[0] / weights.sum(), 1 / 3])
    np.testing.assert_allclose(log["forget"].truth_ratio, [np.exp(-2), 1])
    assert log["forget"].rouge_again.tolist() == [
        1,
        0,
    ]  # as TOFU has it, an empty generation recalls nothing
    assert all(entry.mismatches == [] for entry in log.values())


@cases
def test_a_broken_value_is_missing_in_its_row_alone(tmp_path, key, value, columns):
    entry = read_log(write(tmp_path, **{key: value}))["world"]
    for name in ("probability", "truth_ratio", "rouge", "rouge_again"):
        assert np.isnan(getattr(entry, name)[0]) == (name in columns)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "holds list"),
        ("{}", "no object 'eval_log.json'"),
        (json.dumps({"eval_log.json": {"avg_gt_loss": {}}}), "no object 'avg_paraphrased_loss'"),
        (json.dumps({"eval_log.json": section(generated_text={})}), "no rows"),
    ],
)
def test_a_log_without_its_parts_is_refused(tmp_path, content, message):
    path = tmp_path / "log.json"
    path.write_text(content)
    with pytest.raises(BadFile, match=message) as caught:
        read_log(path)
    assert str(path) in str(caught.value)


NAN = float("nan")


def test_missing_rows_are_counted_and_never_zero():
    for term in (mean_term([1.0, NAN]), forget_truth([1.0, NAN])):
        assert (term.value, term.n, term.missing) == (1, 1, 1)
    assert np.isnan(mean_term([NAN]).value)
    assert mean_term([]).n == 0


def test_model_utility_is_the_harmonic_mean_of_three_terms_a_set():
    rows = {"probability": [0.5, NAN], "rouge": [1.0, 1.0], "truth_ratio": [0.5, 0.5]}
    got = model_utility({"retain": rows, "world": rows})
    assert got.value == pytest.approx(statistics.harmonic_mean([0.5, 1, 0.5]))
    assert list(got.terms) == [
        f"{name}_{part}"
        for name in ("retain", "world")
        for part in ("probability", "rouge", "truth")
    ]
    assert got.terms["world_probability"].missing == 1
    with pytest.raises(BadValue, match="real_authors"):
        model_utility({})


def test_forget_quality_leaves_missing_rows_out():
    rng = np.random.default_rng(0)
    ratios = rng.random(40)
    got = forget_quality([*ratios, NAN], ratios)
    assert (got.p_value, got.n_first, got.n_second) == (1, 40, 40)
    assert forget_quality(ratios, ratios + 1).p_value < 1e-20
    with pytest.raises(BadValue, match="Retrain"):
        forget_quality(ratios, [NAN])


PUBLISHED = {"full_evals_forget10": (4.35e-25, 0.63, 0.52), "retain90": (None, 0.61, 0.68)}


def evaluation(folder, n=40, shift=0.0, name="TOFU_EVAL.json", **blocks):
    """A log whose rows have the same values in every section, and the truth ratios of the forget set moved by ``shift``."""
    log = {}
    for section, (probability, rouge, truth) in BLOCKS.items():
        ratios = [
            0.2 + 0.5 * place / n + (shift if section == "forget" else 0) for place in range(n)
        ]
        texts = {
            "input": "Who?",
            "generation": "It was Ron.",
            "ground_truth": "Ron",
            "rougeL_recall": 1.0,
        }
        rows = (
            [{"prob": 0.5, "avg_loss": 0.7}] * n,
            [texts] * n,
            [{"score": ratio} for ratio in ratios],
        )
        for block, values in zip((probability, rouge, truth), rows, strict=True):
            log[block] = {
                "agg_value": None,
                "value_by_index": {str(place): row for place, row in enumerate(values)},
            }
    path = folder / name
    path.write_text(json.dumps(log | blocks))
    return path


def test_the_published_table(shared):
    place = shared / "data/open-unlearning"
    logs = {name: next(place.glob(f"*_{name}_TOFU_EVAL.json")) for name in PUBLISHED}
    for name, (quality, utility, truth) in PUBLISHED.items():
        read = tofu_log(logs[name], retain=logs["retain90"] if quality else None)
        keys = read.as_json()
        assert float(f"{keys['model_utility']:.2f}") == utility
        assert float(f"{keys['forget_truth_ratio']['value']:.2f}") == truth
        assert (keys["rougeL_recall_mismatches"], keys["stored_differences"]) == (0, {})
        if quality:
            assert float(f"{keys['forget_quality']:.2e}") == quality
            assert set(keys["intervals"]) == {
                "model_utility",
                "forget_quality",
                "forget_truth_ratio",
                *read.utility.terms,
            }


def test_every_number_has_its_interval(tmp_path):
    model = evaluation(tmp_path, shift=0.3)
    retain = evaluation(tmp_path, name="retain.json")
    found = tofu_log(model, retain=retain, alpha=0.1)
    keys = found.as_json()
    rows = {row.names()[0]: row for row in found.rows()}
    assert {name: (row.estimate, row.lower, row.upper) for name, row in rows.items()} == {
        name: (interval["estimate"], interval["lower"], interval["upper"])
        for name, interval in keys["intervals"].items()
    }
    assert {row.upper_bound.alpha for row in rows.values()} == {0.05}
    for interval in keys["intervals"].values():
        assert interval["lower"] <= interval["estimate"] <= interval["upper"]
        assert interval["alpha"] == 0.1
    assert keys["intervals"]["forget_quality"]["estimate"] == keys["forget_quality"]
    assert keys["intervals"]["model_utility"]["estimate"] == keys["model_utility"]


@pytest.fixture
def run_folder(tmp_path):
    """A run that measured some of TOFU's numbers of the model npo, six of the nine terms of its utility among them."""
    rows = table.Rows("npo")
    for quantity, split, value in (
        ("probability", "retain", 0.5),
        ("truth", "retain", 0.1),
        ("model_utility", None, 0.6),
        ("model_utility_terms", None, 6),
    ):
        rows.add("model", quantity, "given answers", value, split=split)
    place = table.place(tmp_path / "data", "metrics", "npo")
    table.write(place, rows.rows)
    return tmp_path / "data"


def test_a_run_stands_beside_the_published_numbers_and_their_noise(tmp_path, run_folder):
    found = tofu_log(evaluation(tmp_path), beside=f"{run_folder}:npo", alpha=0.1)

    numbers = found.as_json()["beside"]["numbers"]
    interval = found.intervals["retain_truth"]
    assert numbers["retain_truth"] == {
        "published": interval.value,
        "lower": interval.lower,
        "upper": interval.upper,
        "measured": 0.1,
        "inside": False,
    }
    assert numbers["retain_probability"]["inside"] is True
    assert set(numbers) == set(found.intervals)
    sentence = found.sentences()[-1]
    assert "1 of 2 numbers of" in sentence
    assert "α = 0.1" in sentence


def test_a_number_that_the_run_lacks_is_absent_and_named(tmp_path, run_folder):
    found = tofu_log(evaluation(tmp_path), beside=f"{run_folder}:npo")

    word_of_number = {number.name: number.word for number in found.beside}
    assert word_of_number["world_rouge"] == "absent"
    assert "world_rouge" in found.sentences()[-1]
    assert word_of_number["model_utility"] == "absent", "a mean of fewer terms is another number"
    without = found.as_json()["beside"]["numbers"]["world_rouge"]
    assert (without["measured"], without["inside"]) == (None, None)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("npo", "a data folder and a model of it, such as data:npo"),
        ("FOLDER:ihl", "a measured model: npo"),
        ("nowhere:npo", "no such folder"),
    ],
)
def test_a_model_that_no_run_measured_is_refused(tmp_path, run_folder, model, message):
    with pytest.raises(BadInput, match=message):
        tofu_log(evaluation(tmp_path), beside=model.replace("FOLDER", str(run_folder)))


def test_nulls_and_absent_blocks_are_missing(tmp_path):
    truth = {
        "agg_value": 0.5,
        "value_by_index": {"0": {"score": None}, "1": {"score": 0.5}, "2": None},
    }
    path = evaluation(
        tmp_path, n=3, ra_Truth_Ratio=truth, wf_Q_A_Prob_normalised={"agg_value": 0.5}
    )
    log = read_log(path)
    assert np.isnan(log["real_authors"].truth_ratio).tolist() == [True, False, True]
    keys = tofu_log(path).as_json()
    assert keys["model_utility"] is None
    assert not {"model_utility", "world_probability", "forget_quality"} & set(keys["intervals"])
    assert keys["utility_terms"]["real_authors_truth"]["missing"] == 2


def test_a_retain_log_needs_the_forget_set_alone(tmp_path):
    retain = tmp_path / "retain.json"
    retain.write_text(
        json.dumps(
            {"forget_truth_ratio": {"value_by_index": {"0": {"score": 0.5}, "1": {"score": 2}}}}
        )
    )
    assert tofu_log(evaluation(tmp_path, n=2), retain=retain).quality.n_second == 2
    with pytest.raises(BadFile, match="retain_Q_A_Prob"):
        tofu_log(retain)
    with pytest.raises(BadValue, match="alpha"):
        tofu_log(evaluation(tmp_path), alpha=1)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 40), st.integers(2, 40), st.floats(0, 1.5), st.sampled_from([0.01, 0.1, 0.5]))
def test_the_interval_of_forget_quality_holds_its_estimate(n, m, shift, alpha):
    test = ks_test(np.arange(n) / n, np.arange(m) / m + shift)
    interval = of_quality(test, alpha)
    assert 0 <= interval.lower <= interval.value <= interval.upper <= 1
    wider = of_quality(test, alpha / 10)
    assert (wider.lower <= interval.lower, wider.upper >= interval.upper) == (True, True)


def test_the_interval_of_forget_quality_covers_equal_distributions():
    random = np.random.default_rng(0)
    tests = [ks_test(random.random(60), random.random(80)) for _ in range(100)]
    assert all(of_quality(test, 0.05).upper == 1.0 for test in tests)


def test_a_mean_covers():
    random = np.random.default_rng(1)
    inside = 0
    for _ in range(100):
        interval = of_mean(random.beta(2, 5, 50), 0.1)
        inside += interval.lower <= 2 / 7 <= interval.upper
    assert inside >= 85
    assert of_mean(np.array([np.nan]), 0.1) is None
    assert of_utility({"a": np.array([0.5]), "b": np.array([np.nan])}, 0.1) is None


def test_a_stored_aggregate_that_the_rows_do_not_give_is_named(tmp_path):
    path = tmp_path / "log.json"
    term = SimpleNamespace(value=0.25)
    path.write_text(
        json.dumps({"model_utility": {"agg_value": 0.5}, "forget_truth_ratio": {"agg_value": 0.25}})
    )
    utility = SimpleNamespace(value=0.75, terms=defaultdict(lambda: term))
    assert differences(path, utility, term, None) == {
        "model_utility": {"stored": 0.5, "recomputed": 0.75}
    }


def test_a_retain_log_of_another_forget_set_has_no_forget_quality(tmp_path):
    log = evaluation(tmp_path)
    fewer = evaluation(tmp_path, n=20, name="fewer.json")
    other = tmp_path / "other.json"
    other.write_text(log.read_text().replace('"ground_truth": "Ron"', '"ground_truth": "Ada"'))

    assert tofu_log(log, retain=log).quality.p_value == 1
    with pytest.raises(BadFile, match="the 20 rows"):
        tofu_log(log, retain=fewer)
    with pytest.raises(BadFile, match="another reference"):
        tofu_log(log, retain=other)


def test_a_row_that_lacks_its_texts_is_missing_and_does_not_vanish(tmp_path):
    texts = {"0": ["Who?", "It was Ron.", "Ron"]}
    of_authors = read_log(write(tmp_path, generated_text=texts))["retain"]
    log = json.loads(evaluation(tmp_path).read_text())
    del log["retain_Q_A_ROUGE"]["value_by_index"]["7"]
    place = evaluation(tmp_path, **log)

    assert (len(of_authors.rows), of_authors.probability.size) == (2, 2)
    assert tofu_log(place).utility.terms["retain_rouge"].missing == 1
    assert tofu_log(place).utility.terms["retain_truth"].n == 40
