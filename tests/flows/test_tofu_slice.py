"""The preset `tofu-slice`: valid params, and its stages on the real files with small settings."""

from __future__ import annotations

import shutil

import pandas as pd
import pytest
import yaml

from flows import settings
from lethe.registry import LIKELIHOODS
from lethe.results import table
from tests.small import ROOT, make_repository, work, write_params


def slice_params(tmp_path) -> dict:
    path = tmp_path / "preset/params.yaml"
    (path.parent / "data/source").mkdir(parents=True)
    (path.parent / "lethe").symlink_to(ROOT / "lethe")  # the prompt is in it
    shutil.copy(ROOT / "params.yaml", path)
    settings.change(path, list(settings.read_preset("tofu-slice").items()))
    return yaml.safe_load(path.read_text())


def test_the_preset_is_valid(tmp_path):
    params = slice_params(tmp_path)
    assert (params["data"]["kind"], params["metrics"]["binary"]) == ("tofu", None)


@pytest.mark.slow
def test_the_stages_on_the_real_files(shared, tmp_path, monkeypatch):
    params = slice_params(tmp_path)
    params["data"]["tofu"] |= {"retain_authors": 2, "heldout_authors": 1}
    params["train"]["recipe"] |= {"vocabulary": 400, "hidden": 32, "layers": 1, "feed_forward": 64, "epochs": 10}
    params["unlearn"]["methods"] = {}
    params["models"] = {name: params["models"][name] for name in ("base", "retrain")}
    params["sample"] |= {"n": 8, "utility_n": 4, "utility_questions": 10, "max_new_tokens": 24}
    folder = make_repository(tmp_path / "lethe", params, git=False)
    for path in (shared / "data/tofu").glob("*.json"):
        shutil.copy(path, folder / "data/source")
    write_params(folder, params)
    monkeypatch.chdir(folder)
    work("prepare")
    for name in params["models"]:
        for stage in ("train", "sample", "likelihood", "score", "metrics"):
            work(f"{stage}@{name}")
    work("compare")

    found = table.read(folder / "data").model("base").values
    assert (found["n_questions"], found["n"]) == (40, 8)
    scores = pd.read_parquet(folder / "data/scores/base/forget.parquet")
    # A model this small answers some questions with nothing, and an empty answer is a missing score, never a zero.
    assert found["missing"] == scores.loc[scores["sample"] >= 0, "rouge_l"].isna().sum()
    assert found["model_utility_terms"] == 9
    assert not any(value for key, value in found.items() if key.endswith("truth_missing"))
    assert 0 <= found["model_utility"] <= 1
    for split in ("retain", "world", "real_authors"):
        assert 0 <= found[f"{split}_self_bleu"] <= 1
    for attack in ("mia_loss", "mia_zlib", "mia_min_k", "mia_min_k_plus_plus"):
        assert found[f"{attack}_auc_low"] <= found[f"{attack}_auc"] <= found[f"{attack}_auc_high"]
    assert table.read(folder / "data").model("retrain").values["forget_quality"] == 1
    assert 0 <= found["forget_quality"] <= 1
    likelihoods = pd.read_parquet(folder / "data/scores/base/likelihood/forget.parquet")
    assert list(likelihoods.columns) == ["prompt_id", *LIKELIHOODS]
    assert len(likelihoods) == 40
    assert likelihoods.notna().all(axis=None)
