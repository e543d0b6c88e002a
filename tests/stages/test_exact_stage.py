"""Stage `exact`, and what `metrics`, `compare`, the report and MLflow read from its output."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lethe import config
from lethe.config.exact import Exact
from lethe.evaluation.exact_bounds import compared, excess_over_retrain, read_certificates, tree_metrics
from lethe.io.json_files import read_json, write_jsonl
from lethe.statistics.bound import CERTAIN
from lethe.tracking.leak_table import heaviest_leaks, leaks_at
from stages import exact as stage
from tests.lethe.sampling.sampling_models import build_llama
from tests.small import ROOT

ROWS = [
    {"id": "one", "question": "ab", "answer": "d", "keywords": ["edbb", "d"]},
    {"id": "two", "question": "c", "answer": "ae", "keywords": ["ae"]},
    {"id": "bare", "question": "d", "answer": "cb"},
]


def params(place: Path, **more) -> config.Params:
    value = config.read_yaml(ROOT / "params.yaml")
    (place / "letters.txt").write_text("{question}")
    value["sample"] |= {"prompt": str(place / "letters.txt"), "max_new_tokens": 4}
    value["models"] = {name: {"path": str(place / name)} for name in ("base", "retrain")}
    value["exact"] = None if more.get("off") else value["exact"] | {"rows": 500, **more}
    return config.validate(value)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("exact")
    for seed, name in ((3, "base"), (4, "retrain")):
        build_llama(place / name, letters="abcde", scale=1.0, seed=seed)
    return place


@pytest.fixture(scope="module")
def root(place, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data") / "data"
    write_jsonl(root / "dataset/forget.jsonl", ROWS)
    for name in ("base", "retrain"):
        stage.run(params(place), root, name)
    return root


def test_its_files_are_read_by_the_other_stages(root):
    values = read_json(root / "exact/base.json")
    assert [row["id"] for row in values["per_question"]] == ["one", "two"]
    assert values["skipped"] == ["bare"]
    found = read_certificates(root, "base")
    flat, bounds = tree_metrics(root, "base")
    assert flat == {
        "tree_lower_worst": max(tree.lower for tree in found.trees),
        "tree_upper_worst": max(tree.upper for tree in found.trees),
        "tree_upper_mean": found.model.pooled.upper,
        "tree_certain_leaks": 2,
    }
    assert bounds["tree_lower_worst"].alpha == CERTAIN
    assert bounds["tree_upper_mean"].covers == "the average over the prompts"
    assert all(bounds[key].value == flat[key] for key in bounds)


def test_the_curve_closes_in_on_the_ends(root):
    table = pd.read_parquet(root / "exact/base/curve.parquet")
    assert set(table["prompt_id"]) == {"one", "two"}
    for tree in read_certificates(root, "base").trees:
        own = table[table["prompt_id"] == tree.id]
        assert (np.diff(own["prefixes"]) > 0).all()
        assert (np.diff(own["lower"]) >= 0).all()
        assert (np.diff(own["upper"]) <= 0).all()
        assert own["lower"].iloc[-1] == pytest.approx(tree.leak_mass)
        assert own["upper"].iloc[-1] == pytest.approx(1 - tree.clean_mass)


def test_null_and_rows_without_keywords_give_no_bounds_and_the_reason(place, root, tmp_path):
    stage.run(params(place, off=True), root=_with(tmp_path / "off", ROWS), name="base")
    assert read_json(tmp_path / "off/exact/base.json")["model"] is None
    assert tree_metrics(tmp_path / "off", "base") == ({}, {})
    stage.run(params(place), root=_with(tmp_path / "bare", ROWS[2:]), name="base")
    assert "keywords" in read_json(tmp_path / "bare/exact/base.json")["reason"]
    assert len(pd.read_parquet(tmp_path / "bare/exact/base/curve.parquet")) == 0
    assert compared(tmp_path / "bare", ["base"], "base", 2.0, 0.01) == {}


def _with(root: Path, rows: list[dict]) -> Path:
    write_jsonl(root / "dataset/forget.jsonl", rows)
    return root


def test_the_excess_over_retrain_is_the_certain_end_over_its_upper_end(root):
    found = compared(root, ["base", "retrain"], "retrain", 1.0, 0.01)
    assert list(found) == ["base"]
    own, other = (read_certificates(root, name).trees for name in ("base", "retrain"))
    told = found["base"]
    assert told.ratios == pytest.approx([a.lower / b.upper for a, b in zip(own, other, strict=True)])
    assert [ratio >= 1 for ratio in told.ratios] == list(told.holds)
    assert any(told.holds)
    assert not any(compared(root, ["base", "retrain"], "base", 1e9, 0.01)["retrain"].holds)
    same = read_certificates(root, "base")
    assert told.flat()["tree_above_retrain"] == sum(told.holds)
    written = json.loads(json.dumps(told.as_json(), allow_nan=False))
    assert written["per_question"][0]["id"] == same.trees[0].id
    assert written["excess_over_retrain"] == np.median(
        [a.lower / b.lower for a, b in zip(own, other, strict=True)]
    )
    assert compared(root, ["base", "retrain"], None, 2.0, 0.01) == {}


def test_a_model_that_shares_no_question_with_retrain_is_left_out(root):
    base, retrain = (read_certificates(root, name) for name in ("base", "retrain"))
    elsewhere = replace(base, trees=tuple(replace(tree, id=f"other {tree.id}") for tree in base.trees))
    models = {"base": base, "elsewhere": elsewhere, "retrain": retrain}
    assert list(excess_over_retrain(models, "retrain", 1.0, 0.01)) == ["base"]


def test_mlflow_gets_the_heaviest_leaks(root):
    table = heaviest_leaks("base", root.parent, lambda text: text)
    probabilities = table["probability"].to_numpy()
    assert (np.diff(probabilities) <= 0).all()
    assert set(table["question"]) == {"ab", "c"}
    every = [leak for tree in read_certificates(root, "base").trees for leak in tree.heaviest_leaks]
    assert len(table) == len(every)


def test_mlflow_gets_the_bands_of_leak_at_n_up_to_a_thousand_million_queries(root):
    table, trees = leaks_at("base", root.parent, lambda text: text), read_certificates(root, "base").trees
    assert list(table["prompt_id"]) == [tree.id for tree in sorted(trees, key=lambda tree: -tree.lower)]
    for row in table.to_dict("records"):
        tree = next(tree for tree in trees if tree.id == row["prompt_id"])
        assert (row["leak@1000000000 from"], row["leak@1000000000 to"]) == tree.leak_at[10**9]
        assert (row["queries_from"], row["queries_to"]) == tree.queries_until_half
    assert leaks_at("nobody", root.parent, lambda text: text).empty


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", 0),
        ("alpha", 0.6),
        ("tau", 0),
        ("ratio", 0.5),
        ("scorer", "none"),
        ("queries", []),
        ("above", 1),
        ("memory", 0),
    ],
)
def test_impossible_params_are_refused(key, value):
    section = config.read_yaml(ROOT / "params.yaml")["exact"]
    Exact.model_validate(section)
    with pytest.raises(ValueError, match=key):
        Exact.model_validate(section | {key: value})
