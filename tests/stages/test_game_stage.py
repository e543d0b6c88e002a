"""Stage `game@NAME` as DVC runs it, and that its predictions give the same numbers to `lethe audit swap`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows.commands.audit_swap import signed_advantages
from stages.statistics.game import unlearning_quality

ROOT = Path(__file__).parents[2]


def run_stage(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "stages.game", *arguments]
    # On one core the stage works in its own process: starting others costs more than this game.
    command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    value = yaml.safe_load((ROOT / "params.yaml").read_text())
    game = yaml.safe_load((ROOT / "flows/presets/game-digits.yaml").read_text())["games"]["digits"]
    game["data"]["points"] = 100
    game["learning"].update(epochs=2, batch=20, lr=0.05, milestones=[])
    game.update(portion=0.2, pairs=1, seeds=2, shadow_models=4, shared_retrain=True)
    game.update(random_splits=False, confused_classes=None, attacks=["correctness", "confidence"])
    game["methods"] = {name: game["methods"][name] for name in ("retrain", "none")}
    value["games"] = {"tiny": game}
    (folder / "params.yaml").write_text(yaml.safe_dump(value))
    done = run_stage(folder, "tiny")
    assert done.returncode == 0, done.stderr
    assert "tiny retrain: unlearning quality 1.000" in done.stdout
    return folder


def test_the_result_is_flat_enough_for_dvc_and_the_report(played):
    result = json.loads((played / "data/games/tiny/result.json").read_text())
    assert result["methods"]["retrain"]["quality"] == 1
    assert {type(value) for row in result["methods"].values() for value in row.values()} <= {
        float,
        int,
        str,
        type(None),
    }
    assert result["schema"] == 1


def test_predictions_give_the_same_quality_to_the_audit(played, tmp_path):
    import pandas as pd

    table = pd.read_parquet(played / "data/games/tiny/predictions.parquet")
    details = json.loads((played / "data/games/tiny/details.json").read_text())
    for method, rows in table.groupby("method"):
        file = tmp_path / f"{method}.parquet"
        rows.to_parquet(file)
        original, swapped, paired = signed_advantages(file)
        again = unlearning_quality(original, swapped, paired=paired)
        assert again.value == pytest.approx(details["methods"][method]["quality"]["value"])
        assert again.ci_low == pytest.approx(details["methods"][method]["quality"]["ci_low"])


def test_an_unknown_game_is_told(played):
    done = run_stage(played, "huge")
    assert done.returncode == 2
    assert "huge" in done.stderr
    assert "Traceback" not in done.stderr
