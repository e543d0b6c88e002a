"""Stage `attack@NAME`: relearned rows are not asked, each seed has its own stream, the same run gives the same bytes."""

import os

import pandas as pd
import pytest

from lethe import config
from lethe.errors import BadInput
from lethe.io.json_files import read_json, read_jsonl
from lethe.results import table
from stages import attack, prepare, train
from tests.small import make_repository, small_params

AFTER = {"kind": "relearn", "rows": "forget", "count": 2, "steps": [1, 3], "lr": 1e-3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    params = small_params()
    params["data"]["authors"] = {"count": 20, "heldout": 2, "world_facts": 2}
    params["train"]["recipe"] |= {"epochs": 2}
    entry = {"path": "data/models/base", "after": AFTER, "n": 8}
    params["attacks"] = {
        "mine": entry,
        "again": entry,
        "noisy": {**entry, "after": {"kind": "noise", "sizes": [1]}},
    }
    folder = make_repository(tmp_path_factory.mktemp("attack") / "lethe", params, git=False)
    former = os.getcwd()
    os.chdir(folder)
    prepare.main()
    train.main("base")
    for name in params["attacks"]:
        attack.main(name)
    yield folder
    os.chdir(former)


def test_every_budget_and_seed_is_asked_all_other_questions(folder):
    answers = pd.read_parquet("data/attacks/mine/answers.parquet")
    questions = {row["id"] for _, row in read_jsonl(folder / "data/dataset/forget.jsonl")}
    assert sorted(answers["budget"].unique()) == [0, 1, 3]
    left_out = []
    for _, own in answers.groupby(["seed", "budget"]):
        left_out.append(frozenset(questions - set(own["prompt_id"])))
        assert len(left_out[-1]) == 2
        assert (own[own["sample"] >= 0].groupby("prompt_id").size() == 8).all()
    assert len(set(left_out)) == 2  # two rows by seed
    noisy = pd.read_parquet("data/attacks/noisy/answers.parquet")
    assert set(noisy["prompt_id"]) == questions


def test_the_curve_counts_the_answers(folder):
    result = read_json(folder / "data/attacks/mine/result.json")
    answers = pd.read_parquet("data/attacks/mine/answers.parquet")
    for one in result["counts"]:
        own = answers[(answers["budget"] == one["budget"]) & (answers["sample"] >= 0)]
        assert one["n"] == len(own) == 2 * 4 * 8
        assert one["total"] == own["score"].sum()
    headline = read_json(folder / "data/attacks/mine.json")
    assert headline["leak_before"] == result["counts"][0]["total"] / result["counts"][0]["n"]


def test_the_band_of_the_curve_is_in_the_table_of_results(folder):
    result = read_json(folder / "data/attacks/mine/result.json")
    found = table.read(folder / "data", ["mine"]).audit("mine")
    points = found.series("attacked", "run")
    assert [row.evidence for row in points] == result["counts"]
    assert [row.at for row in points] == [0, 1, 3]
    for row in points:
        assert row.lower <= row.estimate == row.evidence["total"] / row.evidence["n"] <= row.upper
        assert row.lower_bound.alpha == row.upper_bound.alpha == result["alpha"]
    headline = read_json(folder / "data/attacks/mine.json")
    numbers = {
        key: value for key, value in headline.items() if isinstance(value, (int, float)) and key != "schema"
    }
    assert found.values == numbers
    assert headline["leak_most_upper"] == max(row.upper for row in points)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"after": {"kind": "magic"}}, "a key kind, one of noise, prune, quantise, relearn"),
        ({"after": {**AFTER, "steps": []}}, "attacks.mine.after.steps"),
        ({"after": {"kind": "quantise", "bits": [5]}}, "attacks.mine.after.bits"),
        ({"seeds": []}, "attacks.mine.seeds"),
        ({"scorer": "nosuch"}, "attacks.mine.scorer"),
    ],
)
def test_a_wrong_entry_is_told(folder, change, told):
    value = config.read_yaml(folder / "params.yaml")
    value["attacks"]["mine"] |= change
    with pytest.raises(BadInput) as caught:
        config.validate(value)
    assert told in str(caught.value)
