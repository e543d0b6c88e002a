"""`lethe bounds`: the gate --fail-above, pass^k beside leak@k, and logs against the same scores as CSV."""

from __future__ import annotations

import pandas as pd
import pytest

import lethe
from lethe.errors import BadInput
from tests.lethe.cli.calls import Command
from tests.lethe.io.logs.small_logs import (
    small,
    write_lines,
)

command = Command("bounds")
call, result, refused = command.call, command.result, command.refused
PUBLISHED = {1: 0.420, 2: 0.273, 3: 0.220, 4: 0.200}  # tau-bench's page, GPT-4o, airline


def scores(folder, ones=0, n=200, **more):
    rows = [{"prompt_id": name, "score": float(place < ones)} | more for name in "ab" for place in range(n)]
    return write_lines(folder / "scores.jsonl", rows)


def test_the_gate_opens_where_the_bound_certifies(tmp_path):
    path = scores(tmp_path)
    done = call(path, "--fail-above", "0.05")
    assert done.exit_code == 0
    assert "gate is open" in " ".join(done.output.split())
    done = call(path, "--fail-above", "0.01")
    assert done.exit_code == 1
    assert " ".join(done.output.split()).rpartition("The gate is closed")[2].count("0.01)") == 1  # its level
    gate = result(path, "--fail-above", "0.05")["gate"]
    assert (gate["tau"], gate["closed"], gate["alpha"]) == (0.05, False, 0.01)
    assert gate["bound"] == result(path)["worst_prompt"]["bound"]


@pytest.mark.parametrize("tau", ["-0.1", "1", "nan"])
def test_a_wrong_threshold_is_refused(tmp_path, tau):
    assert call(scores(tmp_path), "--fail-above", tau).exit_code == 2


def test_a_missing_score_closes_the_gate(tmp_path):
    rows = [{"prompt_id": "a", "score": None if place < 20 else 0.0} for place in range(200)]
    path = write_lines(tmp_path / "scores.jsonl", rows)
    assert call(path, "--missing", "worst", "--fail-above", "0.05").exit_code == 1
    assert call(path, "--missing", "drop", "--fail-above", "0.05").exit_code == 0


def test_a_calibration_that_does_not_fit_closes_the_gate(tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("label,verdict\n" + "1,1\n" * 200 + "0,1\n" * 150 + "0,0\n" * 50)
    done = call(scores(tmp_path), "--calibration", labels, "--fail-above", "0.9")
    assert done.exit_code == 1
    assert "calibration" in done.output


def test_pass_hat_k_stands_beside_leak_at_k(tmp_path):
    found = result(scores(tmp_path, ones=150), "--pass-at", "1,2", "--pass-at", "4")
    assert [point["k"] for point in found["pass_hat_k"]] == [1, 2, 4]
    for all_, any_ in zip(found["pass_hat_k"], found["leak_at_k"], strict=True):
        assert all_["lower"] <= all_["estimate"] <= all_["upper"]
        assert all_["estimate"] <= 0.75 <= any_["estimate"] + 1e-12
    assert "pass_hat_k" not in result(scores(tmp_path))
    for wrong in ("0", "a", "1,,2", "1.5"):
        refused(scores(tmp_path), "--pass-at", wrong)
    refused(write_lines(tmp_path / "graded.jsonl", [{"score": 0.5}]), "--pass-at", "1")


def test_another_column_names_the_prompt(tmp_path):
    rows = [{"task": task, "trial": trial, "reward": float(task == "b")} for task in "ab" for trial in (0, 1)]
    path = tmp_path / "rewards.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    found = lethe.bounds(path, score="reward", by="task", pass_at=[1, 2])
    assert [prompt.prompt_id for prompt in found.prompts] == ["a", "b"]
    assert [point.estimate for point in found.pass_hat_k] == [0.5, 0.5]
    table = lethe.bounds(pd.DataFrame(rows), score="reward", by="task")
    assert [prompt.prompt_id for prompt in table.prompts] == ["a", "b"]
    for given in (path, pd.DataFrame(rows)):
        with pytest.raises(BadInput, match="tsk"):
            lethe.bounds(given, score="reward", by="tsk")
    with pytest.raises(BadInput, match="by"):
        lethe.bounds(small("leak-k", tmp_path), by="task")


def test_the_published_pass_hat_k(shared):
    path = shared / "data/pass-k/tau-bench-gpt-4o-airline.csv"
    for point in lethe.bounds(path, score="reward", by="task_id", pass_at="1,2,3,4").pass_hat_k:
        assert round(point.estimate, 3) == PUBLISHED[point.k]
        assert point.lower.value < point.estimate < point.upper.value
