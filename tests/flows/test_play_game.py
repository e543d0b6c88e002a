"""`lethe game` as a user runs it: the Prefect flow of one small game, whole and resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from flows.commands.game import interval_note
from lethe.cli.app import app
from lethe.statistics.unlearning_game import unlearning_quality
from tests.small import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    value = yaml.safe_load((ROOT / "params.yaml").read_text())
    game = yaml.safe_load((ROOT / "flows/presets/game-digits.yaml").read_text())["games"]["digits"]
    game["data"]["points"] = 100
    game["learning"].update(epochs=2, batch=20, lr=0.05, milestones=[])
    game.update(portion=0.2, pairs=1, seeds=1, shadow_models=4, random_splits=False, confused_classes=None)
    game.update(attacks=["confidence"])
    game["methods"] = {name: game["methods"][name] for name in ("retrain", "none")}
    value["games"] = {"tiny": game}
    folder = tmp_path_factory.mktemp("root")
    (folder / "params.yaml").write_text(yaml.safe_dump(value))
    for name in ("flows", "dvc.yaml"):  # what makes it a pipeline folder
        (folder / name).symlink_to(ROOT / name)
    return folder


def test_the_flow_plays_a_game(folder, prefect):
    environment = {**os.environ, **prefect, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    # One core, one worker: each that starts costs more than this game.
    core = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, sys.executable, "-m", "lethe", "game", "tiny", "--json"]
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
    done = CliRunner().invoke(app, ["game", *arguments])
    assert done.exit_code == 2
    assert said in done.stderr


def test_the_calls_of_a_step_run_side_by_side(prefect):
    """Two calls that wait for each other: one after the other they would never meet."""
    import threading
    from concurrent.futures import ThreadPoolExecutor

    from prefect import flow
    from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

    from flows import play_game

    meeting = threading.Barrier(2)

    def meet(seed: int) -> int:
        meeting.wait(timeout=30)
        return seed * 10

    @flow(task_runner=play_game.play.task_runner)
    def step() -> list[int]:
        with ThreadPoolExecutor(2) as pool:
            return play_game._in_tasks(pool)(meet, [(1,), (2,)], "learn")

    quiet = {PREFECT_API_URL: prefect["PREFECT_API_URL"], PREFECT_LOGGING_TO_API_ENABLED: False}
    with temporary_settings(quiet):
        assert step() == [10, 20]
