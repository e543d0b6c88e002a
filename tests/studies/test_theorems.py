"""The numeric checks of theorems, and what a study leaves behind: its outcome file and a run in MLflow."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.io.files import flat_numbers
from studies import outcome, theorems, tracked

SECONDS = ("one-run-theorem-3", "probabilistic-propositions-3-4")  # thousands of simulated runs


def test_the_printed_bound_of_the_standard_deviation_misses_fair_coins(monkeypatch):
    monkeypatch.setattr(theorems, "RUNS", 50)

    values = theorems.CHECKS["probabilistic-metric-4-printed"]()

    assert values["misses"]["mean"] == 1


def test_the_printed_p_value_rejects_a_true_null_of_independent_channels_too_often(monkeypatch):
    monkeypatch.setattr(theorems, "NULL_RUNS", 400)

    values = theorems.CHECKS["one-run-theorem-3"]()

    revealed = values["a bit is revealed with probability .005"]
    assert revealed["chernoff"]["smallest"] > 0.1
    assert revealed["exact"]["largest"] < 0.05


@pytest.mark.parametrize("name", [name for name in theorems.CHECKS if name not in SECONDS])
def test_each_check_gives_finite_numbers(name, monkeypatch):
    monkeypatch.setattr(theorems, "RUNS", 50)
    monkeypatch.setattr(theorems, "ADVERSARIES", 5)

    numbers = flat_numbers(theorems.CHECKS[name]())

    assert numbers
    assert np.isfinite(list(numbers.values())).all()


def test_a_table_of_two_splits_beats_retraining_and_the_swap_refutes_it(monkeypatch):
    monkeypatch.setattr(theorems, "RUNS", 50)

    values = theorems.two_random_splits()

    assert values == {"random splits": 1.0, "swapped pair": 0.0}


def test_an_adversary_that_knows_the_most_sensitive_point_gains_all_where_it_was_forgotten():
    accepts = np.zeros((2**theorems.POINTS, theorems.POINTS))
    accepts[:, 0] = 1
    sensitivities = np.array([1.0, 0, 0, 0, 0, 0]) + 1e-12

    advantages = np.round(theorems._advantages(accepts, sensitivities), 6)

    # Of 90 splits, the point is forgotten in 30 and tested in 30.
    assert np.count_nonzero(advantages == 1) == 30
    assert np.count_nonzero(advantages == -1) == 30


def test_the_lower_bound_of_a_mechanism_comes_near_the_epsilon_of_a_mean_of_few_records():
    values = theorems.private_mean()

    assert 0.7 < values["largest ratio"] <= 1


def test_the_command_writes_an_outcome_with_its_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(app, ["study", "theorems", "game-theorem-3.6", "--json"])

    assert done.exit_code == 0, done.output
    document = outcome.read(tmp_path / "data/studies/outcomes/theorem-game-theorem-3.6.json")
    assert document["command"] == "lethe study theorems game-theorem-3.6"
    assert json.loads(done.stdout)["game-theorem-3.6"] == document["values"]


@pytest.fixture
def small_study(tmp_path, monkeypatch) -> outcome.Study:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LETHE_TRACKING", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    settings = {"runs": 2, "data": {"kind": "digits"}}
    return outcome.Study("small", "lethe study x", [3, 4], settings, commit="abc")


@pytest.mark.slow  # MLflow makes its tables in seconds
def test_mlflow_has_a_study_with_its_outcome_file_its_figures_and_its_settings(
    small_study, tmp_path
):
    from mlflow import MlflowClient

    figure = tmp_path / "figure-1.png"
    figure.write_bytes(b"\x89PNG")

    path = small_study.finish({"cells": [{"mean": 0.5}], "worst": 1.5}, [figure])

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(tracked.EXPERIMENT)
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "small"
    assert run.data.metrics == {"cells.0.mean": 0.5, "worst": 1.5}
    assert run.data.params == {"runs": "2", "data.kind": "digits", "seeds": "[3, 4]"}
    assert run.data.tags["lethe.command"] == "lethe study x"
    artifacts = Path(run.info.artifact_uri.removeprefix("file://"))
    assert (artifacts / "small.json").read_bytes() == path.read_bytes()
    assert (artifacts / "figures/figure-1.png").is_file()


def test_a_study_whose_logging_fails_keeps_its_outcome(small_study, monkeypatch, capsys):
    def fails(*_):
        raise OSError("no disk")

    monkeypatch.setattr(tracked, "_log", fails)

    path = small_study.finish({"worst": 1.5})

    assert outcome.read(path)["values"] == {"worst": 1.5}
    assert "not logged (OSError)" in capsys.readouterr().err


def test_a_study_without_tracking_says_nothing(small_study, monkeypatch, capsys):
    monkeypatch.setenv("LETHE_TRACKING", "off")

    small_study.finish({"worst": 1.5})

    assert capsys.readouterr().err == ""
