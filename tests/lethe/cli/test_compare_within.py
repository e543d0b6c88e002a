"""`lethe compare` within one run: models of a data folder, declared independence, and what dependence costs."""

import json

import pytest

from tests.lethe.cli.calls import Command
from tests.lethe.cli.test_compare_command import data

command = Command("compare")
result = command.result
refused = command.refused
call = command.call
DRAWN = {"engine": "prefix", "max_new_tokens": 8}
REPORT = "report: {base: base, retrain: retrain}\nmodels: {base: {}, retrain: {}, npo: {}, diff: {}, ascent: {}}\n"


@pytest.fixture
def run(tmp_path):
    """A pipeline's folder: two models for comparison, and three under test, whose streams differ."""
    rates = {"base": 0.9, "retrain": 0.0, "npo": 0.1, "diff": 0.5, "ascent": 0.1}
    for name, rate in rates.items():
        root = data(
            tmp_path, {"q": rate, "r": rate}, model=name, n=400, stream=f"of {name}", **DRAWN
        )
    params = tmp_path / "params.yaml"
    params.write_text(params.read_text() + REPORT)
    return root


def test_two_models_of_a_run_are_compared_question_by_question(run):
    got = result(f"{run}:npo", f"{run}:diff")

    assert (got["a"], got["b"]) == (f"{run}:npo", f"{run}:diff")
    assert [row["holds"] for row in got["per_question"]] == [True, True]


def test_models_with_streams_of_their_own_are_independent(run):
    got = result(f"{run}:npo", f"{run}:diff")

    assert "Fisher" in got["pooled"]["method"]
    assert got["dependence"] is None


def test_models_that_share_a_stream_are_compared_by_pairs(tmp_path):
    for name in ("npo", "diff"):
        root = data(tmp_path, {"q": 0.2}, model=name, stream="shared", **DRAWN)

    got = result(f"{root}:npo", f"{root}:diff")

    assert "paired" in got["per_question"][0]["method"]


def test_a_folder_alone_ranks_its_models_under_test(run):
    got = result(run)

    assert [row["run"] for row in got["runs"]] == ["npo", "diff", "ascent"]
    assert [row["rank_pooled"] for row in got["runs"]] == [[1, 2], [3, 3], [1, 2]]
    assert len(got["pairs"]) == 3


def test_models_can_be_named_for_a_ranking(run):
    got = result(run, "--model", "retrain", "--model", "diff")

    assert [row["run"] for row in got["runs"]] == ["retrain", "diff"]


def test_a_question_that_no_model_could_be_judged_on_takes_no_part(run):
    import pandas as pd

    for place in run.glob("scores/*/forget.parquet"):
        table = pd.read_parquet(place)
        table.loc[table["prompt_id"] == "r", "keyword_leak"] = None
        table.to_parquet(place)

    assert result(run)["questions"] == 1


def test_one_side_alone_is_refused(tmp_path, run):
    table = tmp_path / "a.csv"
    table.write_text("prompt_id,score\nq,1\n")

    assert "one side alone" in refused(table)
    assert "two or more" in refused(run, "--model", "npo")


def test_a_model_that_the_folder_lacks_is_named(run):
    assert "ascent, base, diff" in refused(f"{run}:nop", f"{run}:npo")


def test_a_gate_needs_two_sides(run):
    assert "two sides" in refused(run, "--fail-on", "worse")


def tables(tmp_path):
    paths = []
    for name, ones in (("a", 40), ("b", 57)):
        paths.append(tmp_path / f"{name}.csv")
        paths[-1].write_text("prompt_id,score\n" + "q,1\n" * ones + "q,0\n" * (200 - ones))
    return paths


def test_files_without_a_record_say_what_dependence_costs(tmp_path):
    sides = tables(tmp_path)

    cost = result(*sides)["dependence"]

    assert 1.05 < cost["ratio"] < 1.5
    assert cost["shared"] is False
    assert "declare it (--independent)" in " ".join(call(*sides).output.split())


def test_files_can_be_declared_independent(tmp_path):
    sides = tables(tmp_path)

    plain = result(*sides)
    declared = result(*sides, "--independent")

    assert "Fisher" in declared["per_question"][0]["method"]
    assert declared["per_question"][0]["p_value"] < plain["per_question"][0]["p_value"]
    assert declared["notes"][-1] == "A and B are declared independent; no record says so"


def test_a_note_on_several_runs_is_said_once(tmp_path):
    a, b = tables(tmp_path)
    c = tmp_path / "c.csv"
    c.write_text(b.read_text())

    notes = result(a, b, c)["notes"]

    about = f"{a} (A) and each of the others (B): "
    assert notes == [about + "no record says how the answers of A and B were drawn"]


@pytest.mark.parametrize(("declared", "status"), [((), 1), (("--independent",), 0)])
def test_a_gate_uses_the_declaration(tmp_path, declared, status):
    """Each as a first try."""
    margin = ("--require", "not-worse", "--by", "0.2")

    assert call(*tables(tmp_path), *margin, *declared).exit_code == status


def test_sides_of_one_seed_cannot_be_declared_independent(tmp_path):
    sides = []
    for name in ("a", "b"):
        sides.append(data(tmp_path / name, {"q": 0.2}, engine="transformers", max_new_tokens=8))

    assert "one seed (3)" in refused(*sides, "--independent")
    assert json.dumps(result(*sides)["dependence"]["shared"]) == "true"
