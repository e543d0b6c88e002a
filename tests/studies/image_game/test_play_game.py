"""`lethe study game` as a user runs it: one small game."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from lethe import config
from lethe.cli.app import app
from lethe.errors import BadInput
from studies.commands import PRESETS
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


def with_games(preset):
    return config.read_yaml(ROOT / "params.yaml") | config.read_yaml(PRESETS / f"{preset}.yaml")


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("game-*.yaml")))
def test_every_preset_is_valid(preset):
    assert config.validate(with_games(preset)).games


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda g: g["methods"].update(x={"method": "magic"}), r"digits.methods.x.method: got 'magic'; .*fisher"),
        (lambda g: g.update(attacks=["guess"]), r"games.digits.attacks.0: got .*guess.*likelihood_ratio"),
        (lambda g: g["methods"].update(x={"method": "fisher"}), r"digits.methods.x: .*needs noise"),
        (lambda g: g["learning"].update(network="vgg"), r"games.digits.learning.network: .*'resnet18'"),
    ],
)
def test_a_mistake_is_named_by_its_key(change, key):
    value = with_games("game-digits")
    change(value["games"]["digits"])
    with pytest.raises(BadInput, match=key):
        config.validate(value)
