"""`lethe study game` as a user runs it: one small game."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.statistics.unlearning_game import unlearning_quality
from studies.image_game.play import interval_note
from tests.small import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    value = yaml.safe_load((ROOT / "params.yaml").read_text())
    game = yaml.safe_load((ROOT / "studies/presets/game-digits.yaml").read_text())["games"]["digits"]
    game["data"]["points"] = 100
    game["learning"].update(epochs=2, batch=20, lr=0.05, milestones=[])
    game.update(portion=0.2, pairs=1, seeds=1, shadow_models=4, random_splits=False, confused_classes=None)
    game.update(attacks=["confidence"])
    game["methods"] = {name: game["methods"][name] for name in ("retrain", "none")}
    value["games"] = {"tiny": game}
    folder = tmp_path_factory.mktemp("root")
    (folder / "params.yaml").write_text(yaml.safe_dump(value))
    shutil.copy(ROOT / "dvc.yaml", folder)
    for name in ("flows", "studies"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_the_command_plays_a_game(folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    # One core, one worker: each that starts costs more than this game.
    core = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, sys.executable, "-m", "lethe", "study", "game", "tiny", "--json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result["methods"]) == {"retrain", "none"}
    assert (folder / "data/games/tiny/index.html").is_file()
    # Four shadow models; learned and two methods in either half.
    assert len(list((folder / ".lethe/scratch/game").glob("*/logits.npy"))) == 4 + 2 * 3


def test_the_table_says_what_its_intervals_hold_for():
    signed = {"confidence": [[0.1, 0.2]]}
    quality = replace(unlearning_quality(signed, signed), method="Student", assumes="means are normal")
    told = interval_note(quality)
    assert quality.bounds()[0].guarantee() in told
    assert "No intervals" in interval_note(replace(quality, ci_low=None))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("huge",), "a game of params.yaml: tiny"),
        (("tiny", "--preset", "game-digits"), "a game of preset game-digits: digits"),
        (("tiny", "--preset", "none"), "--preset"),
    ],
)
def test_an_unknown_game_is_told(folder, monkeypatch, arguments, said):
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["study", "game", *arguments])
    assert done.exit_code == 2
    assert said in done.stderr
