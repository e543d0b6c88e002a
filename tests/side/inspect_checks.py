"""Lethe inside the real Inspect; `python -m tests.benchmarks inspect` runs these in an environment of its own."""

import json
import math
import os
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from inspect_ai import Task, eval, score
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Score, Scorer, Target, accuracy, precomputed_scores, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from lethe.inspect_ai import EarlyStopping, bounds_of, lethe_bounds
from lethe.io.logs import read_log
from lethe.statistics.bounds import binary_upper
from lethe.statistics.sequential import stopped_upper

ROOT = Path(__file__).resolve().parents[2]
RATES = {"clean": 0.0, "leaky": 0.6}


@solver
def scripted(rates: dict, seed: int = 0, fails: bool = False) -> Solver:
    """Answers by a coin per id and epoch, at once or later: the order of completion is another than that of the epochs."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        import asyncio

        coin = random.Random(f"{seed} {state.sample_id} {state.epoch}")
        leaks = coin.random() < rates[state.sample_id]
        await asyncio.sleep(0.02 * coin.random() * (3 if leaks else 1))
        if fails and state.epoch == 2:
            raise RuntimeError("no answer")
        state.output = ModelOutput.from_content("mockllm/model", "leak" if leaks else "nothing")
        return state

    return solve


def found(metrics):
    @scorer(metrics=metrics)
    def holds() -> Scorer:
        async def judge(state: TaskState, target: Target) -> Score:
            return Score(value="C" if state.output.completion == "leak" else "I")

        return judge

    return holds()


def run(tmp_path, rates=RATES, epochs=8, metrics=None, seed=0, fails=False, temperature=1.0, **how):
    dataset = [Sample(id=name, input=f"Who is {name}?") for name in rates]
    task = Task(
        dataset=dataset,
        solver=scripted(rates, seed, fails),
        scorer=found(metrics or [accuracy()]),
        epochs=epochs,
        **how,
    )
    (log,) = eval(
        task,
        model="mockllm/model",
        log_dir=str(tmp_path),
        display="none",
        max_samples=6,
        fail_on_error=False,
        temperature=temperature,
    )
    assert log.status == "success"
    return log


def lethe(*arguments, cwd):
    """The command of the main environment, for this environment has no torch."""
    command = [
        os.environ.get("LETHE_PYTHON", ROOT / ".venv/bin/python"),
        "-m",
        "lethe",
        *map(str, arguments),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def metrics_of(log):
    values = {}
    for result in log.results.scores:
        values |= {name: metric.value for name, metric in result.metrics.items()}
    return values


def test_the_metric_has_the_bounds_of_all_epochs(tmp_path):
    log = run(tmp_path, epochs=40, metrics=[accuracy(), lethe_bounds(alpha=0.05)])
    scores = read_log(log.location).scored("holds")
    hits = scores.groupby("prompt_id")["score"].sum()
    got = metrics_of(log)
    assert got["worst_upper"] == pytest.approx(
        max(float(binary_upper(hit, 40, 0.05)) for hit in hits)
    )
    assert got["average_upper"] == pytest.approx(float(binary_upper(hits.sum(), 80, 0.05)))
    assert got["worst_anytime_upper"] >= got["worst_upper"]
    assert hits["leaky"] / 40 < got["worst_mean_upper"] < 1
    assert got["worst_sample leaky"] == got["worst_upper"]
    assert "worst_sample clean" not in got
    assert (got["questions"], got["answers"], got["missing"]) == (2, 80, 0)
    assert got["accuracy"] == pytest.approx(scores["score"].mean())


def test_a_greedy_task_gets_no_bound_and_no_verdict(tmp_path):
    stopping = EarlyStopping(tau=0.1, alpha=0.05, leak_is="high")
    how = {"metrics": [lethe_bounds(alpha=0.05)], "early_stopping": stopping}
    log = run(tmp_path, epochs=60, temperature=0.0, **how)
    got = metrics_of(log)
    assert got == {"questions": 2, "answers": 120, "missing": 0, "refused": 1}
    told = log.results.early_stopping
    assert told.early_stops == []
    assert told.metadata["verdicts"] is None
    assert "greedy decoding (temperature 0" in told.metadata["refused"][0]


def test_epochs_with_an_error_count_where_the_metric_knows_the_epochs(tmp_path):
    log = run(tmp_path, epochs=8, metrics=[lethe_bounds(alpha=0.05, epochs=8)], fails=True)
    got = metrics_of(log)
    assert (got["answers"], got["missing"]) == (16, 2)


def test_early_stopping_skips_and_the_log_gets_anytime_valid_values(tmp_path):
    stopping = EarlyStopping(tau=0.1, alpha=0.05, leak_is="high")
    log = run(tmp_path, epochs=300, early_stopping=stopping)
    told = log.results.early_stopping
    assert told.manager == "lethe"
    assert told.metadata["verdicts"] == {"clean": "certified", "leaky": "leaks"}
    assert told.metadata["refused"] == []
    assert told.metadata["epochs_skipped"] == len(told.early_stops) > 300
    read = read_log(log.location)
    assert read.stopping == "early"
    assert read.missing == {}
    values = read.scored("holds")
    got = json.loads(lethe("bounds", log.location, "--alpha", 0.05, "--json", cwd=tmp_path))
    for row in got["per_prompt"]:
        scores = values[values["prompt_id"] == row["prompt_id"]]["score"].to_numpy()
        assert row["n"] == len(scores) < 300
        assert row["m_bin"] is None
        assert row["anytime_upper"] == pytest.approx(stopped_upper(scores, 0.05))


def test_an_error_never_makes_a_verdict_from_the_epochs_behind_it(tmp_path):
    manager = EarlyStopping(tau=0.1, alpha=0.05)
    log = run(tmp_path, epochs=60, early_stopping=manager, fails=True)
    for name, test in manager.tests.items():
        order, known = manager.scheduled[name], manager.scores[name]
        seen = [known[epoch] for epoch in order[: manager.taken[name]]]
        assert (
            list(test.scores)
            == [1.0 if math.isnan(value) else value for value in seen][: len(test.scores)]
        )
        assert math.isnan(known[2]) if 2 in known else manager.taken[name] == order.index(2)
    assert log.results.early_stopping.metadata["verdicts"].keys() == {"clean", "leaky"}


def test_a_false_verdict_is_as_rare_as_alpha_however_the_epochs_complete(tmp_path):
    """The rate is just above tau, and leaking answers take three times as long: in order of completion they come last."""
    names = {f"q{number}": 0.2 for number in range(30)}
    manager = EarlyStopping(tau=0.199, tau_leak=0.9, alpha=0.1)
    run(tmp_path, rates=names, epochs=30, early_stopping=manager)
    false = sum(test.verdict == "certified" for test in manager.tests.values())
    assert false <= 30 * 0.1 + 2.6 * math.sqrt(30 * 0.09)


def test_scores_made_anew_go_back_as_precomputed_scores(tmp_path):
    log = run(tmp_path, epochs=4)
    rows = tmp_path / "rows.jsonl"
    asks = {"question": "Who?", "answer": "leak", "keywords": ["leak"]}
    rows.write_text("".join(json.dumps({"id": name, **asks}) + "\n" for name in RATES))
    out = tmp_path / "records.json"
    asked = ("--scorer", "keyword_leak", "--data", rows)
    lethe("score", log.location, *asked, "--to", "inspect", "--out", out, cwd=tmp_path)
    scored = score(
        read_eval_log(log.location),
        precomputed_scores(str(out), "error"),
        action="append",
        display="none",
    )
    for sample in scored.samples:
        assert sample.scores["precomputed_scores"].value == float(
            sample.scores["holds"].value == "C"
        )
    (bounds := tmp_path / "bounds.json").write_text("")
    lethe("bounds", log.location, "--to", "inspect", "--out", bounds, cwd=tmp_path)
    scored = score(
        read_eval_log(log.location), precomputed_scores(str(bounds), "error"), display="none"
    )
    hits = read_log(log.location).scored("holds").groupby("prompt_id")["score"].sum()
    for sample in scored.samples:
        value = sample.scores["precomputed_scores"].value
        assert value == pytest.approx(float(binary_upper(hits[sample.id], 4, 0.01)))


def test_bounds_of_a_fresh_log_equal_those_of_its_scores_as_csv(tmp_path):
    log = run(tmp_path, epochs=20, seed=5)
    table = tmp_path / "scores.csv"
    samples = sorted(
        read_eval_log(log.location).samples,
        key=lambda sample: (list(RATES).index(sample.id), sample.epoch),
    )
    lines = [f"{sample.id},{float(sample.scores['holds'].value == 'C')}" for sample in samples]
    table.write_text("prompt_id,score\n" + "\n".join(lines) + "\n")
    got, expected = (
        json.loads(lethe("bounds", path, "--leak-is", "high", "--json", cwd=tmp_path))
        for path in (log.location, table)
    )
    assert got.pop("log")["tool"].startswith("inspect_ai")
    # The log's scorer is Inspect's own; of a table the score is as its user says.
    del got["score_means"], expected["score_means"]
    assert got == expected


def test_no_score_is_no_bound():
    assert bounds_of([], 0.05, None)["questions"] == 0
    assert bounds_of([np.array([math.nan])], 0.05, None)["missing"] == 1
    graded = bounds_of([np.array([0.1]), np.array([0.9] * 30)], 0.05, None, ["few", "many"])
    assert (
        graded["worst_sample few"] == graded["worst_mean_upper"]
    )  # one answer shows less than thirty
    with pytest.raises(ValueError, match="tau"):
        EarlyStopping(tau=2)
