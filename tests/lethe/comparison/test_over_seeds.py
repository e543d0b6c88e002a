"""Methods over seeds: which models are one method, what its row says, and what the tests between methods can show."""

import json
from pathlib import Path

import pytest

from lethe import config
from lethe.api.tabling import table as lethe_table
from lethe.comparison.over_seeds import OverSeeds, families, rows_over_seeds
from lethe.config.load import changed_document
from lethe.errors import BadInput
from lethe.io.files import write_json
from lethe.results import table
from lethe.results.table import Numbers, result
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.seeds import PERMUTATIONS, SIGNS
from tests.lethe.cli.calls import Command
from tests.lethe.unlearning.test_trajectory import record_of
from tests.small import ROOT

METHOD = {"loss": "npo", "lr": 1.0e-4, "epochs": 1, "beta": 0.1, "retain_weight": 1.0}
WORDS = "forgot, intact"


def params_of(seeds_of_method, **more):
    methods = {name: {**METHOD, "seeds": seeds} for name, seeds in seeds_of_method.items()}
    changes = {
        "unlearn.methods": methods,
        "models": {
            "base": {"path": "data/models/base"},
            "retrain": {"path": "data/models/retrain"},
        },
        **more,
    }
    return config.validate(changed_document(changes.items(), ROOT / config.FILE))


def numbers_of(model, leakage, utility):
    end = Bound(leakage + 0.1, "upper", 0.01, Covers.WORST_PROMPT, "independence", "CP", 8)
    rows = [
        result(model, "model", "leak", "sampled", leakage),
        result(model, "model", "leak_worst", "sampled", upper=end),
        result(model, "model", "kept", "sampled", utility, split="retain"),
    ]
    return Numbers(rows)


def over_seeds(params, leakage_of_model, words=WORDS):
    """The rows over seeds of models with these leakages; all keep .9 of the retain score, but for their leakage."""
    numbers = {}
    for model in params.models:
        leakage = leakage_of_model.get(model, 0.5)
        numbers[model] = numbers_of(model, leakage, 0.9 - leakage / 10)
    return OverSeeds(rows_over_seeds(params, numbers, dict.fromkeys(params.models, words)))


THREE = {"npo": 0.2, "npo_12": 0.3, "npo_22": 0.4, "ihl": 0.01, "ihl_12": 0.02, "ihl_22": 0.03}


@pytest.fixture
def three():
    return over_seeds(params_of({"npo": [2, 12, 22], "ihl": [2, 12, 22]}), THREE)


def test_the_models_of_a_method_are_its_seeds():
    at = {"path": "data/models/npo", "adaptive_threshold": 0.9}
    models = {
        "base": {"path": "data/models/base"},
        "npo": {"path": "data/models/npo"},
        "npo_at": at,
    }
    found = families(params_of({"npo": [2, 12]}, models=models, **{"report.retrain": None}))

    assert {family.name: family.models for family in found} == {
        "base": ("base",),
        "npo": ("npo", "npo_12"),
        "npo_at": ("npo_at", "npo_at_12"),
    }
    assert found[1].seeds == (2, 12)


def test_a_run_without_seeds_has_no_rows():
    default = config.load(ROOT / config.FILE)

    assert families(default) == []
    assert rows_over_seeds(default, {}, {}) == []


def test_a_method_is_one_row_with_mean_spread_and_interval(three):
    assert three.titles == ["base (1 seed)", "retrain (1 seed)", "npo (3 seeds)", "ihl (3 seeds)"]
    # Student's t with two degrees of freedom: .3 ± 4.303 * .1 / sqrt(3), rounded outward
    assert three.cell("npo (3 seeds)", "binary_mean") == "0.300 ± 0.100 [0.051, 0.549]"
    assert three.cell("base (1 seed)", "binary_mean") == "0.500"


def test_the_mean_of_bounds_has_a_range_and_no_interval(three):
    assert three.cell("npo (3 seeds)", "m_bin_worst") == "0.401 (0.301 to 0.500)"
    row = three.rows["npo (3 seeds)", "m_bin_worst"]
    assert (row.lower, row.upper) == (None, None)
    assert any("with probability 0.99" in sentence for sentence in three.sentences())


def test_the_guarantees_name_their_bounds_and_are_those_of_the_shown_numbers(three):
    of_all = [said for said in three.sentences() if "a bound holds" in said]
    assert [said.partition(":")[0] for said in of_all] == ["m_bin_worst"]

    assert three.sentences(["m_bin_worst"]) == three.sentences()
    assert not any("a bound holds" in said for said in three.sentences(["binary_mean"]))


def test_the_words_of_the_models_are_counted(three):
    assert three.words("npo (3 seeds)") == f"{WORDS}: 3"


def test_three_seeds_show_no_difference_and_say_how_many_would(three):
    assert [row.facts["p_value"] for row in three.pairs] == pytest.approx([0.1, 0.1])
    assert not any(row.facts["holds"] for row in three.pairs)
    (sentence,) = [said for said in three.sentences() if "So few seeds" in said]
    assert "can have is 0.1." in sentence
    assert "needs 5 seeds" in sentence


def test_enough_seeds_show_a_difference():
    seeds = [2, 12, 22, 32, 42]
    leakages = {}
    for place, seed in enumerate(seeds):
        suffix = "" if place == 0 else f"_{seed}"
        leakages[f"npo{suffix}"] = 0.2 + place / 100
        leakages[f"ihl{suffix}"] = 0.01 + place / 100

    found = over_seeds(params_of({"npo": seeds, "ihl": seeds}), leakages)

    assert [row.facts["holds"] for row in found.pairs] == [True, True]
    assert found.pairs[0].estimate == pytest.approx(-0.19)
    assert found.pairs[0].upper < 0


def test_pairs_of_equal_seeds_are_paired_where_it_is_declared():
    declared = params_of({"npo": [2, 12, 22], "ihl": [22, 12, 2]}, **{"report.paired_seeds": True})
    leakages = {"npo": 0.2, "npo_12": 0.3, "npo_22": 0.4, "ihl_2": 0.1, "ihl_12": 0.2, "ihl": 0.31}

    found = over_seeds(declared, leakages)

    leakage = found.pairs[0]
    assert leakage.facts["test"] == SIGNS
    assert leakage.facts["p_value"] == pytest.approx(2 / 2**3)
    # differences -.1, -.1, -.09
    assert leakage.upper - leakage.lower == pytest.approx(2 * 4.3027 * 0.0057735 / 3**0.5, rel=1e-3)


def test_other_seeds_are_no_pairs():
    declared = params_of({"npo": [2, 12], "ihl": [3, 13]}, **{"report.paired_seeds": True})

    found = over_seeds(declared, {})

    assert found.pairs[0].facts["test"] == PERMUTATIONS


def test_draws_that_all_models_share_are_told():
    shared = params_of({"npo": [2, 12]}, **{"sample.stream": "shared"})

    assert any("share the random numbers" in said for said in over_seeds(shared, {}).sentences())


def test_each_loss_stands_at_its_least_leakage_that_keeps_nine_tenths():
    params = params_of({"mild": [2, 12], "hard": [2, 12], "harsh": [2, 12]})
    values = {"base": (0.9, 1.0), "mild": (0.4, 0.98), "hard": (0.1, 0.9), "harsh": (0.0, 0.2)}
    numbers = {}
    for model in params.models:
        numbers[model] = numbers_of(model, *values.get(model.removesuffix("_12"), (0.0, 1.0)))

    found = OverSeeds(rows_over_seeds(params, numbers, {}))

    (matched,) = found.matched()
    assert (matched.tried, matched.chosen.title) == (3, "hard (2 seeds)")
    assert matched.chosen.kept == pytest.approx(0.9)
    assert found.matched_table()[1] == [["npo", "3", "hard (2 seeds)", "0.900", "0.100 ± 0.000"]]


def test_a_loss_that_keeps_too_little_says_how_much():
    """Of Base's .9 a leakage of 2 leaves .7 by construction."""
    found = over_seeds(params_of({"npo": [2, 12]}), {"base": 0.0, "npo": 2.0, "npo_12": 2.0})

    assert found.matched_table()[1] == [["npo", "1", "none: at most 0.778 is kept", "–", "–"]]


@pytest.fixture
def run(three, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table.write(table.place(Path("data"), "compare", "models"), three.results)
    return three


def test_the_rows_come_back_from_their_file(run):
    again = OverSeeds(table.read_rows(table.place(Path("data"), "compare", "models")))

    assert again.as_json() == run.as_json()
    assert again.sentences() == run.sentences()


def test_a_table_by_method_says_what_its_numbers_need_of_a_model(run):
    place = table.place(Path("data"), "metrics", "npo")
    place.parent.mkdir(parents=True)
    table.write(place, numbers_of("npo", 0.2, 0.9).rows)

    text = lethe_table("data", by="method", column=["binary_mean"]).text

    assert "models: answers only." in text


def test_lethe_table_prints_a_row_for_each_method(run):
    done = Command("table").call("data", "--by", "method", "--column", "binary_mean")

    lines = done.stdout.splitlines()
    assert lines[0] == "method | binary_mean | forgetting, utility: models"
    assert "npo (3 seeds) | 0.300 ± 0.100 [0.051, 0.549] | forgot, intact: 3" in lines


def test_the_table_takes_points_along_unlearning_where_they_were_measured(run):
    before = Command("table").call("data", "--by", "method", "--column", "binary_mean").stdout
    write_json(
        Path("data/models/npo/training.json"), {"schema": 1, **record_of((0.9, 0.8), (0.3, 0.79))}
    )

    after = Command("table").call("data", "--by", "method", "--column", "binary_mean").stdout

    assert "epoch 1" in after
    assert "of each loss" in before
    assert "of each loss" not in after


def test_the_table_reads_no_model_that_is_no_part_of_the_run(run):
    left_over = {"schema": 99, **record_of((0.9, 0.8), (0.3, 0.79))}
    write_json(Path("data/models/earlier/training.json"), left_over)

    printed = Command("table").call("data", "--by", "method", "--column", "binary_mean").stdout

    assert "npo (3 seeds)" in printed
    assert "epoch 1" not in printed


def test_json_has_every_value_and_the_tests(run):
    (methods,) = Command("table").result("data", "--by", "method")["runs"].values()

    npo = methods["methods"][2]
    assert npo["seeds"] == [2, 12, 22]
    assert npo["numbers"]["binary_mean"]["values"] == [0.2, 0.3, 0.4]
    assert methods["pairs"][0]["holds"] is False
    assert json.loads(json.dumps(methods)) == methods


def test_a_paper_gets_latex_and_every_digit_as_csv(run):
    latex = lethe_table("data", by="method", column=["binary_mean"], to="latex").text
    frame = lethe_table("data", by="method", column=["binary_mean"]).to_frame()

    assert r"& 0.300 $\pm$ 0.100 [0.051, 0.549] &" in latex
    assert frame.loc["npo (3 seeds)", "binary_mean_lower"] == pytest.approx(0.0515862)


def test_a_run_without_seeds_or_a_wrong_column_is_a_sentence(run):
    assert "a number over seeds" in Command("table").refused(
        "data", "--by", "method", "--column", "x"
    )
    table.write(table.place(Path("data"), "compare", "models"), [])
    with pytest.raises(BadInput, match="no method with several"):
        lethe_table("data", by="method")
