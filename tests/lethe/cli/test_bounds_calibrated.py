"""`lethe bounds --calibration`: true leaks behind a judge's verdicts, of each prompt and of the pool."""

import json

import numpy as np
import pandas as pd
import pytest

from lethe.statistics.counts import random_labels
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate
from tests.lethe.cli.calls import Command

CALLED, N = (30, 8), 200


@pytest.fixture
def calibration(tmp_path):
    labels = [1] * 60 + [0] * 140
    verdicts = [1] * 57 + [0] * 3 + [1] * 7 + [0] * 133
    path = tmp_path / "labelled.csv"
    pd.DataFrame({"label": labels, "verdict": verdicts}).to_csv(path, index=False)
    return path


@pytest.fixture
def scores(tmp_path):
    rows = [(name, int(i < k)) for name, k in zip("ab", CALLED, strict=True) for i in range(N)]
    path = tmp_path / "s.csv"
    pd.DataFrame(rows, columns=["prompt_id", "score"]).to_csv(path, index=False)
    return path


command = Command("bounds", "--alpha", "0.03")
call, result, refused = command.call, command.result, command.refused


def test_a_missing_verdict_of_the_calibration_counts_against_the_judge(scores, calibration):
    table = pd.read_csv(calibration).astype({"verdict": float})
    table.loc[0, "verdict"] = np.nan
    table.to_csv(calibration, index=False)
    want = Rate.of([30], N, judge=Calibration(60, 56, 140, 7, leaks_unjudged=1)).each(0.03)
    for more in ([], ["--missing", "worst"]):  # the stage judge@ writes such a file
        row = result(scores, "--calibration", calibration, *more)["per_prompt"][0]
        assert row["judged"]["upper"] == want.upper[0, 0]


def test_scores_that_are_no_verdicts_are_refused(tmp_path, calibration):
    mixed = pd.DataFrame({"prompt_id": list("aabb"), "score": [0, 1, 0.2, 0]})
    mixed.to_csv(tmp_path / "graded.csv", index=False)
    refused(tmp_path / "graded.csv", "--calibration", calibration)
    # Nothing is said of the leaks of all prompts, since b leaks too with a probability that no count shows.
    assert "Leak@" not in call(tmp_path / "graded.csv").output
    mixed.assign(score=[0, 1, 0, 0]).to_csv(tmp_path / "binary.csv", index=False)
    assert "Leak@" in call(tmp_path / "binary.csv").output


def test_verdicts_that_the_calibration_excludes_have_no_bound(tmp_path, calibration):
    """A judge with 5% false alarms cannot call 0 of 2,000 answers a leak."""
    pd.DataFrame({"score": [0] * 2000}).to_csv(tmp_path / "none.csv", index=False)
    row = result(tmp_path / "none.csv", "--calibration", calibration)["per_prompt"][0]["judged"]
    assert (row["fits"], row["lower"], row["upper"], row["leak_at_k"]) == (False, None, None, [])
    assert "true probability" not in call(tmp_path / "none.csv", "--calibration", calibration).output


def test_a_calibration_of_another_judge_is_refused(scores, calibration):
    pd.read_csv(calibration).assign(judge="5f0c").to_csv(calibration, index=False)
    own = pd.read_csv(scores).assign(judge="5f0c")
    own.to_csv(scores, index=False)
    assert result(scores, "--calibration", calibration)["judged"]["upper"] < 1
    own.assign(judge="77aa").to_csv(scores, index=False)
    assert "5f0c" in refused(scores, "--calibration", calibration)


def test_labels_of_random_draws_bound_the_average_whatever_the_scores(tmp_path, scores):
    rows = [("a", draw, draw % 5 == 0) for draw in range(30)] + [("b", draw, False) for draw in range(60)]
    table = pd.DataFrame(rows, columns=["prompt_id", "sample", "label"]).astype({"label": int})
    table.to_csv(tmp_path / "labels.csv", index=False)
    got = result(scores, "--labels", tmp_path / "labels.csv")["labelled"]
    assert (got["lower"], got["upper"]) == random_labels(6, 90, 0.03)
    assert (got["n"], got["alpha"]) == (90, 0.03)
    pd.DataFrame({"prompt_id": ["a"] * 30 + ["b"] * 60, "score": 0}).to_csv(tmp_path / "clean.csv", index=False)
    table[:30].to_csv(tmp_path / "part.csv", index=False)
    for name, tau, closed in (("labels", 0.45, False), ("labels", 0.05, True), ("part", 0.45, True)):
        labels = ("--labels", tmp_path / f"{name}.csv")
        done = call(tmp_path / "clean.csv", *labels, "--fail-above", tau, "--json")
        assert (json.loads(done.stdout)["gate"]["closed"], done.exit_code) == (closed, int(closed))
    for wrong, said in ((("a", -1, 1), "greedy"), (("a", 3, 1), "a second time"), (("c", 3, 1), "prompt_id")):
        pd.concat([table, pd.DataFrame([wrong], columns=table.columns)]).to_csv(tmp_path / "w.csv", index=False)
        assert said in refused(scores, "--labels", tmp_path / "w.csv")
