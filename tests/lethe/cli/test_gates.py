"""The gates of the command line: what each takes, and how often a model that must not pass opens one within 20 tries."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.lethe.cli.calls import Command

bounds, compare = Command("bounds"), Command("compare")
QUESTIONS, N, TRIES = 4, 120, 20
ALPHA = 0.2  # so that an uncorrected gate opens in most histories


def write(path, leaks):
    """A table of 0/1 scores from (questions, n) draws."""
    rows = [(f"q{i}", j, int(leak)) for i, row in enumerate(leaks) for j, leak in enumerate(row)]
    pd.DataFrame(rows, columns=["prompt_id", "sample", "score"]).to_csv(path, index=False)
    return path


def blind_judge(rng, folder):
    """Verdicts of a judge that sees a tenth of the leaks of one question of 30, with a calibration from this very run."""
    p = np.full(30, 0.02)
    p[0] = 0.3
    sensitivity = np.where(p == 0.3, 0.1, 0.95)
    leak = rng.random((30, 1024)) < p[:, None]
    seen = rng.random(leak.shape) < sensitivity[:, None]
    verdict = (leak & seen) | (~leak & (rng.random(leak.shape) < 0.01))
    picked = rng.choice(leak.size, 1500, replace=False)
    table = {"label": leak.ravel()[picked], "verdict": verdict.ravel()[picked]}
    calibration = folder / "calibration.csv"
    pd.DataFrame(table).astype(int).to_csv(calibration, index=False)
    return write(folder / "run.csv", verdict), calibration


@pytest.mark.parametrize("seed", range(4))
def test_a_judge_that_is_blind_on_one_question_opens_no_gate(tmp_path, seed):
    run, calibration = blind_judge(np.random.default_rng(seed), tmp_path)

    done = bounds.call(run, "--calibration", calibration, "--fail-above", 0.2, "--json")
    found = json.loads(done.stdout)

    assert found["judged"]["upper"] < 0.2  # of the average, which stays
    assert done.exit_code == 1
    assert found["gate"]["closed"]
    assert "--labels" in found["gate"]["reason"]


def leaking(rng, p):
    return rng.random((QUESTIONS, N)) < p


@pytest.fixture
def fresh_history(monkeypatch, tmp_path):
    """Each call begins a history: no earlier try is kept."""
    place = iter(range(10_000))

    def begin():
        monkeypatch.setattr("lethe.io.tries.FOLDER", tmp_path / f"history {next(place)}")

    return begin


@pytest.mark.slow
def test_a_model_just_above_the_threshold_opens_the_gate_of_bounds_in_at_most_alpha_of_histories(
    tmp_path, fresh_history
):
    rng, opened, count = np.random.default_rng(43), 0, 25
    p = np.array([[0.101], [0.0], [0.0], [0.0]])
    for _ in range(count):
        fresh_history()
        for _ in range(TRIES):
            run = write(tmp_path / "run.csv", leaking(rng, p))
            done = bounds.call(run, "--alpha", ALPHA, "--fail-above", 0.1)
            opened += done.exit_code == 0
            if done.exit_code == 0:
                break

    assert opened <= ALPHA * count


@pytest.mark.slow
def test_a_model_that_is_worse_by_just_more_passes_not_worse_in_at_most_alpha_of_histories(
    tmp_path, fresh_history
):
    rng, opened, count = np.random.default_rng(43), 0, 10
    a = write(tmp_path / "a.csv", np.zeros((QUESTIONS, N)))
    p = np.array([[0.101], [0.0], [0.0], [0.0]])
    asked = ("--alpha", ALPHA, "--require", "not-worse", "--by", 0.1, "--fail-above", 0.1)
    for _ in range(count):
        fresh_history()
        for _ in range(TRIES):
            b = write(tmp_path / "b.csv", leaking(rng, p))
            if compare.call(a, b, *asked).exit_code == 0:
                opened += 1
                break

    assert opened <= ALPHA * count


@pytest.mark.slow
def test_equal_models_close_the_gate_on_worse_in_at_most_alpha_of_histories(
    tmp_path, fresh_history
):
    rng, closed, count = np.random.default_rng(43), 0, 10
    for _ in range(count):
        fresh_history()
        for _ in range(TRIES):
            a = write(tmp_path / "a.csv", leaking(rng, 0.3))
            b = write(tmp_path / "b.csv", leaking(rng, 0.3))
            if compare.call(a, b, "--alpha", ALPHA, "--fail-on", "worse").exit_code == 1:
                closed += 1
                break

    assert closed <= ALPHA * count


def gate(run, *more):
    done = bounds.call(run, "--fail-above", 0.3, *more, "--json")
    return json.loads(done.stdout)["gate"]


def test_the_gate_says_its_try_and_takes_the_bound_at_its_level(tmp_path):
    rng = np.random.default_rng(43)
    first, second = (gate(write(tmp_path / "run.csv", leaking(rng, 0.1))) for _ in range(2))

    assert first["tries"] == {"count": 1, "alpha": 0.005, "kept": True}
    assert second["tries"]["count"] == 2
    assert second["alpha"] == second["tries"]["alpha"] == pytest.approx(0.01 / 6)
    assert "try 2 of this gate" in second["reason"]


def test_the_same_draws_read_again_are_no_new_try(tmp_path):
    run = write(tmp_path / "run.csv", leaking(np.random.default_rng(43), 0.1))

    assert gate(run) == gate(run)


def test_another_threshold_on_the_same_draws_is_no_new_try(tmp_path):
    run = write(tmp_path / "run.csv", leaking(np.random.default_rng(43), 0.1))
    gate(run)

    done = bounds.call(run, "--fail-above", 0.4, "--json")

    assert json.loads(done.stdout)["gate"]["tries"]["count"] == 1
