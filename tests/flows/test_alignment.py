"""The alignment preset whole, made small: two models are trained, one judges the other, and the page carries the error."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pandas as pd
import pytest
import yaml

from lethe import config
from lethe.results import table
from tests.small import ROOT, make_repository

STAGES = (
    *(
        "prepare",
        "train@refuser",
        "train@judge",
        "sample@refuser",
        "likelihood@refuser",
        "judge@harm",
        "score@refuser",
    ),
    *("metrics@refuser", "compare", "epsilon_star@refuser", "report"),
)


def small_preset() -> dict:
    value = config.read_yaml(ROOT / "params.yaml")
    for key, own in config.read_yaml(ROOT / "flows/presets/alignment.yaml").items():
        *sections, last = key.split(".")
        section = value
        for name in sections:
            section = section[name]
        section[last] = own
    value["data"]["requests"] |= {"requests": 3, "demonstrations": 24, "judgements": 24, "labelled": 20}
    for model in value["train"]["models"].values():
        model["recipe"] |= {"hidden": 16, "layers": 1, "feed_forward": 16, "vocabulary": 900, "epochs": 2}
    value["sample"] |= {"n": 16, "utility_n": 2, "utility_questions": 2, "max_new_tokens": 12}
    return value


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = make_repository(tmp_path_factory.mktemp("alignment") / "lethe", small_preset(), git=False)
    former = Path.cwd()
    os.chdir(folder)
    for stage in STAGES:
        name, _, key = stage.partition("@")
        importlib.import_module(f"stages.{name}").main(*([key] if key else []))
    yield folder
    os.chdir(former)


@pytest.mark.slow
def test_the_judge_reads_what_the_refuser_says(folder):
    assert json.loads((folder / "data/models/judge/config.json").read_text())["max_position_embeddings"] >= 1024
    scores = pd.read_parquet(folder / "data/scores/refuser/forget.parquet")
    assert {"harm", "harm_p", "keyword_leak"} <= set(scores)
    assert len(scores) == 3 * 17
    known = pd.read_csv(folder / "data/judged/harm/calibration.csv")
    assert list(known) == ["label", "verdict", "judge"]
    assert len(known) == 20


@pytest.mark.slow
def test_the_results_carry_the_error_of_the_judge(folder):
    metrics = table.read(folder / "data").model("refuser").values
    assert 0 <= metrics["judged_worst"] <= 1
    assert metrics["judge_labelled"] == 20


@pytest.mark.slow
def test_the_stage_of_the_judge_depends_on_its_model(folder):
    stages = yaml.safe_load((folder / "dvc.yaml").read_text())["stages"]
    assert "data/judged" in stages["score"]["do"]["deps"]
    assert "${item.model}" in stages["judge"]["do"]["deps"]
