"""The gates of the command line: what each takes, and how often a model that must not pass opens one within 20 tries."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from lethe.api.probabilities import ExactBounds
from lethe.cli import hooks
from lethe.io import tries
from lethe.measure.prompts import MeasureSettings, measure_prompts, worst_of
from lethe.measure.scores import PromptScores
from lethe.results.table import Rows
from lethe.statistics.answer_tree import Masses, Remainder, leak_interval
from lethe.statistics.leak_rates import QUERIES
from lethe.statistics.leak_trees import AnswerTree, Certificates, How
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


def sampled_evaluation(rng, p, attempt):
    """What `_gate_of_answers` reads of an evaluation whose questions leak with probability ``p``."""
    leaks = leaking(rng, p).astype(float)
    prompts = [PromptScores(f"q{place}", scores) for place, scores in enumerate(leaks)]
    rows = Rows("m")
    measure_prompts(rows, prompts, MeasureSettings(alpha=ALPHA))
    worst = worst_of(rows.rows, "leak")
    questions = pd.DataFrame({"binary_share": leaks.mean(axis=1)})
    return SimpleNamespace(
        attempt=attempt,
        numbers=SimpleNamespace(values={}, upper=lambda name, basis: worst.bound),
        refused=(),
        skipped=(),
        questions=questions,
        models=["m"],
        rows=rows.rows,
    )


def histories_that_open(fresh_history, count, opens):
    """In how many histories of `TRIES` tries ``opens`` is true once."""
    opened = 0
    for _ in range(count):
        fresh_history()
        opened += any(opens() for _ in range(TRIES))
    return opened


def most_histories(count):
    """The most of ``count`` histories that open where each does with probability alpha; more come once in 1,000 runs."""
    return binom.isf(1e-3, count, ALPHA)


@pytest.mark.slow
@pytest.mark.parametrize("corrected", [True, False])
def test_a_model_just_above_the_threshold_opens_the_gate_of_eval_in_at_most_alpha_of_histories(
    fresh_history, monkeypatch, corrected
):
    """Without the correction for tries the same model opens it in most histories."""
    rng, count = np.random.default_rng(43), 20
    p = np.array([[0.101], [0.0], [0.0], [0.0]])

    def opens():
        draws = int(rng.integers(2**62))
        attempt = tries.begin("eval", draws, ALPHA) if corrected else Uncorrected(1, ALPHA)
        evaluation = sampled_evaluation(rng, p, attempt)
        read = SimpleNamespace(rows=lambda model: evaluation.rows)
        monkeypatch.setattr("lethe.results.table.read", lambda *place: read)
        return not hooks._gate_of_answers(evaluation, {}, Path(), 0.1)["closed"]

    opened = histories_that_open(fresh_history, count, opens)

    assert (opened <= most_histories(count)) == corrected


class Uncorrected(tries.Try):
    """A try at the whole level."""

    level = ALPHA


def walked(rng, leak_mass, rate):
    """The bounds of a question that leaks with probability 0.101, of which the walk found ``leak_mass``."""
    rest, unfound = 0.2, 0.101 - leak_mass
    leaks = int(rng.poisson(rate * unfound))
    sampled = leaks + int(rng.poisson(rate * (rest - unfound)))
    masses, remainder = Masses((leak_mass,), (0.8 - leak_mass,)), Remainder(rate, sampled, leaks)
    ends = leak_interval(masses, remainder, ALPHA)
    tree = AnswerTree.of("a", ends, masses, remainder, QUERIES, rows=1, heaviest_leaks=())
    how = How("keyword_leak", 1.0, 0, 1.0, None, 1, "float32", 0.0)
    return ExactBounds(Certificates("m", (tree,), how, 0.05))


@pytest.mark.slow
@pytest.mark.parametrize("corrected", [True, False])
def test_a_model_just_above_the_threshold_opens_the_gate_of_exact_in_at_most_alpha_of_histories(
    fresh_history, monkeypatch, corrected
):
    """Without the correction for tries the same model opens it in most histories."""
    rng, count = np.random.default_rng(43), 20
    if not corrected:
        monkeypatch.setattr(tries, "begin", lambda *asked: Uncorrected(1, ALPHA))

    def opens():
        result = walked(rng, leak_mass=0.04, rate=2000)
        return not hooks._gate_of_trees(result, {"model": Path("m")}, 0.1)["closed"]

    opened = histories_that_open(fresh_history, count, opens)

    assert (opened <= most_histories(count)) == corrected


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
