"""The gates of the command line: what each takes, and how often a model that must not pass opens one within 20 tries."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from lethe.api.probabilities import ExactBounds
from lethe.cli.gates.answers import gate_of_answers
from lethe.cli.gates.gate import Gate
from lethe.cli.gates.trees import gate_of_trees
from lethe.io import processes, tries
from lethe.io.processes import QuestionCounts
from lethe.statistics.answer_tree import Masses, Remainder, leak_interval
from lethe.statistics.anytime import log_below
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.leak_rates import QUERIES
from lethe.statistics.leak_trees import AnswerTree, Certificates, How
from tests.lethe.cli.calls import Command

bounds, compare = Command("bounds"), Command("compare")
QUESTIONS = 4
N = 120
TRIES = 20
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
        history = tmp_path / f"history {next(place)}"
        monkeypatch.setattr("lethe.io.tries.FOLDER", history)
        monkeypatch.setattr("lethe.io.processes.FOLDER", history)

    return begin


@pytest.mark.slow
def test_a_model_just_above_the_threshold_opens_the_gate_of_bounds_in_at_most_alpha_of_histories(
    tmp_path, fresh_history
):
    rng = np.random.default_rng(43)
    opened = 0
    count = 25
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
    rng = np.random.default_rng(43)
    opened = 0
    count = 10
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
    rng = np.random.default_rng(43)
    closed = 0
    count = 10
    for _ in range(count):
        fresh_history()
        for _ in range(TRIES):
            a = write(tmp_path / "a.csv", leaking(rng, 0.3))
            b = write(tmp_path / "b.csv", leaking(rng, 0.3))
            if compare.call(a, b, "--alpha", ALPHA, "--fail-on", "worse").exit_code == 1:
                closed += 1
                break

    assert closed <= ALPHA * count


def evaluation_of(process, rng, p, seed, alpha, answers=N):
    """What `gate_of_answers` reads of an evaluation that drew ``answers`` with leak probabilities ``p`` by this seed."""
    leaks = rng.binomial(answers, p).tolist()
    drawn = {f"q{place}": QuestionCounts(count, answers) for place, count in enumerate(leaks)}
    begun = processes.begin(process, seed, answers)
    draws = ("upper", alpha, Covers.WORST_PROMPT, "independent draws within each prompt", "")
    return SimpleNamespace(
        process=begun.with_counts(seed, drawn, answers),
        attempt=SimpleNamespace(alpha=alpha),
        numbers=SimpleNamespace(values={}, upper=lambda name, basis: Bound(0.5, *draws)),
        refused=(),
        skipped=(),
        questions=pd.DataFrame({"binary_share": leaks}),
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


def opened(rng, runs, p, tau, alpha, answers, continued):
    """In how many histories of `TRIES` seeds a gate opens: seeds of one process, or tests by themselves."""
    n = np.full((runs, TRIES), answers)
    leaks = rng.binomial(answers, p, size=n.shape)
    if continued:
        leaks, n = leaks.cumsum(axis=1), n.cumsum(axis=1)
    return int((log_below(leaks, n, tau) >= np.log(1 / alpha)).any(axis=1).sum())


@pytest.mark.parametrize("answers", [64, 256, 1024])
def test_twenty_seeds_of_a_gate_are_wrong_in_at_most_alpha_of_two_hundred_histories(answers):
    rng = np.random.default_rng(46)

    assert opened(rng, 200, 0.0101, 0.01, 0.01, answers, continued=True) <= 2


def test_twenty_tests_of_their_own_are_wrong_more_often_than_one_process():
    asked = {"runs": 4000, "p": 0.0101, "tau": 0.01, "alpha": 0.05, "answers": 512}

    continued = opened(np.random.default_rng(46), **asked, continued=True)
    separate = opened(np.random.default_rng(46), **asked, continued=False)

    assert continued <= 0.05 * 4000
    assert separate > 2 * continued


def test_the_gate_of_eval_opens_when_the_evidence_of_all_seeds_has_reached_alpha(fresh_history):
    rng = np.random.default_rng(43)
    is_open = []
    leaks = n = 0
    reached = False
    fresh_history()
    for seed in range(TRIES):
        evaluation = evaluation_of("the model", rng, [0.08], str(seed), 0.01)
        counts = evaluation.process.totals()["q0"]
        assert counts.n == n + N
        leaks, n = counts.leaks, counts.n
        reached = reached or log_below(leaks, n, 0.1) >= np.log(100)
        is_open.append(not gate_of_answers(evaluation, {}, Path(), 0.1).json["closed"])
        assert is_open[-1] == reached

    assert set(is_open) == {True, False}


def test_a_gate_that_opened_stays_open_whatever_is_drawn_later(fresh_history):
    fresh_history()
    clean = evaluation_of("the model", np.random.default_rng(43), [0.0], "0", 0.01)
    assert not gate_of_answers(clean, {}, Path(), 0.1).json["closed"]

    leaking_now = evaluation_of("the model", np.random.default_rng(43), [1.0], "1", 0.01)
    gate = gate_of_answers(leaking_now, {}, Path(), 0.1).json

    assert (gate["closed"], gate["bound"]) == (False, 0.1)
    assert gate_of_answers(leaking_now, {}, Path(), 0.2).json["closed"]


class Uncorrected(tries.Try):
    """A try at the whole level."""

    level = ALPHA


def walked(rng, leak_mass, rate):
    """The bounds of a question that leaks with probability 0.101, of which the walk found ``leak_mass``."""
    rest = 0.2
    unfound = 0.101 - leak_mass
    leaks = int(rng.poisson(rate * unfound))
    sampled = leaks + int(rng.poisson(rate * (rest - unfound)))
    masses = Masses((leak_mass,), (0.8 - leak_mass,))
    remainder = Remainder(rate, sampled, leaks)
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
    rng = np.random.default_rng(43)
    count = 20
    if not corrected:
        monkeypatch.setattr(tries, "begin", lambda *asked: Uncorrected(1, ALPHA))

    def opens():
        result = walked(rng, leak_mass=0.04, rate=2000)
        return not gate_of_trees(result, {"model": Path("m")}, 0.1).json["closed"]

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


GATES_OF_TWO = {
    "another gate": ("--fail-on", "worse"),
    "another difference": ("--by", 0.4, "--require", "not-worse"),
    "another level": ("--fail-above", 0.3, "--alpha", 0.01),
}


@pytest.mark.parametrize("options", GATES_OF_TWO.values(), ids=GATES_OF_TWO)
def test_the_same_draws_of_two_sides_are_one_try_of_every_gate(tmp_path, options):
    rng = np.random.default_rng(43)
    before, after = (write(tmp_path / f"{name}.csv", leaking(rng, 0.1)) for name in "ab")
    compare.call(before, after, "--fail-above", 0.3)

    done = compare.call(before, after, *options, "--json")

    assert json.loads(done.stdout)["tries"]["count"] == 1


def test_other_draws_of_two_sides_with_the_same_means_are_another_try(tmp_path):
    leaks = leaking(np.random.default_rng(43), 0.1)
    before, after = (write(tmp_path / f"{name}.csv", leaks) for name in "ab")
    compare.call(before, after, "--fail-above", 0.3)
    fresh = write(tmp_path / "fresh.csv", leaks[:, ::-1])

    done = compare.call(before, fresh, "--fail-above", 0.3, "--json")

    assert json.loads(done.stdout)["tries"]["count"] == 2


@pytest.mark.parametrize(
    ("closed", "truncated", "says"),
    [(False, 0.982, True), (True, 0.982, False), (False, 0.0, False)],
)
def test_an_open_gate_says_which_share_of_the_answers_was_cut(closed, truncated, says):
    gate = Gate({"closed": closed, "reason": "The gate.", "bound": 0.01})

    assert ("98.2% of them" in gate.up_to_limit(truncated).json["reason"]) is says
