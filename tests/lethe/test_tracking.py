"""Runs in MLflow: each model once, nothing lost when the server is down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
import yaml

from lethe import tracking
from lethe.io.files import write_json
from lethe.results import table
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.tracking import entries
from lethe.tracking.runs import GAP
from tests.flows.faults import answering_server

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

LOCK = {
    "schema": "2.0",
    "stages": {
        "unlearn@npo": {
            "cmd": "python -m stages.unlearn npo",
            "params": {
                "params.yaml": {"unlearn.methods.npo": {"lr": 0.1, "entropy": {"forget": 5.0}}}
            },
            "outs": [{"path": "data/models/npo", "md5": "a.dir"}],
        },
        "score@npo": {
            "deps": [{"path": "data/models/npo", "md5": "a.dir"}],
            "outs": [{"path": "data/scores/npo", "md5": "s.dir"}],
        },
        "metrics@npo": {
            "params": {"params.yaml": {"metrics": {"leak": "rouge", "binary": "keyword"}}},
            "outs": [
                {"path": "data/results/metrics/npo.parquet", "md5": "b"},
                {"path": "data/metrics/npo.json", "md5": "c"},
            ],
        },
        "metrics@other": {"outs": [{"path": "data/results/metrics/other.parquet", "md5": "e"}]},
        "sample@gone": {"cmd": "x", "outs": [{"path": "data/generations/gone", "md5": "d.dir"}]},
        "metrics@gone": {
            "cmd": "x",
            "outs": [{"path": "data/results/metrics/gone.parquet", "md5": "f"}],
        },
    },
}
VERDICT = "At most 50% <script> of answers | leak"
WORST = "the \u202eanswer\x1b[31m <b>|"

M_BIN = (("b", 0.1), ("a", 0.5), ("c", 0.01))
WORST_BOUND = Bound(0.5, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS_WITHIN, "m", 8)


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory) -> bytes:
    """A tracking database whose tables are made: making them takes seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path, monkeypatch, empty_store) -> Path:
    for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT", "LETHE_TRACKING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    (tmp_path / "mlflow.db").write_bytes(empty_store)
    (tmp_path / "params.yaml").write_text("sample: {n: 8, scorers: [a, b]}\nnothing: {}\n")
    steps = [{"step": step, "epoch": 0, "loss": 1 / (step + 1)} for step in range(700)]
    write_json(tmp_path / "data/models/npo/training.json", {"steps": steps})
    write_json(tmp_path / "data/metrics/npo.json", {"schema": 1, "mean": 0.25})
    write_results(tmp_path, 0.25, WORST_BOUND)
    other = table.result("other", "model", "score", "sampled", 0.125)
    table.write(table.place(tmp_path / "data", "metrics", "other"), [other])
    compared = [
        table.result(name, "model", "forget_quality", "given answers", value)
        for name, value in (("npo", 0.75), ("other", 1.0))
    ]
    table.write(table.place(tmp_path / "data", "compare", "models"), compared)
    write_answers(tmp_path)
    write_lock(tmp_path, LOCK)
    return tmp_path


def write_results(folder: Path, mean: float, worst: Bound) -> None:
    """The table of npo: single numbers, one missing, one without an end, and the questions."""
    rows = table.Rows("npo")
    rows.add("model", "score", "sampled", mean)
    rows.add("model", "leak_worst", "sampled", None, None, worst)
    rows.add("model", "judge_fits", "judged", 1.0)
    rows.add("model", "sd", "sampled", None)
    rows.add("model", "max", "sampled", 0.75)
    rows.add("model", "tail", "sampled", 0.1, at=0.5)
    for item, value in M_BIN:
        rows.add("question", "score", "sampled", 1 - value, item=item)
        upper = Bound(value, "upper", 0.01, Covers.ONE_PROMPT, Assumes.DRAWS, "m", 8)
        rows.add("question", "leak", "sampled", 0.0, None, upper, item=item)
    table.write(table.place(folder / "data", "metrics", "npo"), rows.rows)


def write_answers(folder: Path) -> None:
    """Question a: one text drawn twice, scored higher by the other scorer; b: one judged answer; c: nothing leaks."""
    drawn = [("a", -1, "greedy", 0.9, 0.0), ("a", 0, "rare", 0.9, 1.0), ("a", 1, WORST, 0.9, 1.0)]
    drawn += [
        ("a", 2, WORST, 0.9, 1.0),
        ("b", 0, "b one", 1.0, 0.0),
        ("b", 1, "b two", None, None),
        ("c", 0, "c", 0.0, 0.0),
    ]
    drawn += [("a", sample, "often, and no leak", 1.0, 0.0) for sample in (3, 4, 5)]
    answers = pd.DataFrame(drawn, columns=["prompt_id", "sample", "text", "rouge", "keyword"])
    for kind, columns in (("generations", ["text"]), ("scores", ["rouge", "keyword"])):
        path = folder / "data" / kind / "npo" / "forget.parquet"
        path.parent.mkdir(parents=True)
        answers[["prompt_id", "sample", *columns]].to_parquet(path)
    rows = [
        {"id": name, "question": f"Who is {name}?", "answer": f"It is {name}."} for name in "abc"
    ]
    (folder / "data/dataset").mkdir()
    (folder / "data/dataset/forget.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )


def write_summary(
    folder: Path, standing: str = "leaks", worst: float = 0.5, mean: float = 0.25
) -> None:
    told = {
        "standing": standing,
        "verdict": VERDICT,
        "metrics": {"m_bin_worst": worst, "mean": mean},
    }
    write_json(folder / "data/report/summary.json", {"models": {"npo": told}})


def write_lock(folder: Path, lock: dict) -> None:
    (folder / "dvc.lock").write_text(yaml.safe_dump(lock))


def store_of(folder: Path, store: str = "mlflow.db") -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{folder / store}")


def logged(folder: Path, store: str = "mlflow.db") -> list[Run]:
    client = store_of(folder, store)
    return list(
        client.search_runs(
            [one.experiment_id for one in client.search_experiments()], max_results=1000
        )
    )


def runs(folder: Path, store: str = "mlflow.db", parents: bool = False) -> list[str]:
    names = [run.info.run_name for run in logged(folder, store)]
    return sorted(
        name if parents else own(name) for name in names if name.startswith("pipeline ") == parents
    )


def own(name: str) -> str:
    """The model of a run's name, which the time of its pipeline follows."""
    return name.split(" ")[0]


def tags(folder: Path, name: str) -> dict[str, str]:
    return next(dict(run.data.tags) for run in logged(folder) if run.info.run_name.startswith(name))


def kept_table(folder: Path, name: str) -> list[dict]:
    (path,) = [
        path for path in (folder / ".lethe/mlruns").rglob(name) if path.parent.name == "artifacts"
    ]
    held = json.loads(path.read_text())
    return [dict(zip(held["columns"], row, strict=True)) for row in held["data"]]


def test_a_pipeline_with_its_models(folder):
    assert tracking.log_new(folder) == "MLflow: 2 new runs."
    assert runs(folder) == ["npo", "other"], "a model whose metrics are gone is not logged"
    assert len(runs(folder, parents=True)) == 1
    held = logged(folder)
    (parent,) = (run.info.run_id for run in held if run.info.run_name.startswith("pipeline"))
    below = {own(run.info.run_name): run for run in held if run.info.run_id != parent}
    pipeline = next(run.info.run_name for run in held if run.info.run_id == parent)
    assert below["npo"].info.run_name == f"npo {pipeline.removeprefix('pipeline ')}"
    assert {run.data.tags["mlflow.parentRunId"] for run in below.values()} == {parent}
    npo = below["npo"].data
    assert npo.params == {
        "method": "npo",
        "unlearn.lr": "0.1",  # without the method's name: two methods share the key
        "unlearn.entropy.forget": "5.0",
        "metrics.leak": "rouge",
        "metrics.binary": "keyword",
    }
    assert any(run.data.params.get("sample.scorers") == '["a", "b"]' for run in held)
    headline = {key: value for key, value in npo.metrics.items() if not key.startswith("training/")}
    assert headline == {"mean": 0.25, "m_bin_worst": 0.5, "forget_quality": 0.75}
    assert npo.metrics.keys() - headline.keys() == {"training/loss"}
    steps = store_of(folder).get_metric_history(below["npo"].info.run_id, "training/loss")
    assert (len(steps), max(step.step for step in steps)) == (700, 699)
    told = tags(folder, "npo")
    assert {key: json.loads(value) for key, value in told.items() if key.startswith("bound.")} == {
        "bound.m_bin_worst": WORST_BOUND.guarantee_dict()
    }
    assert {key for key in told if key.startswith("stage.")} == {
        "stage.unlearn",
        "stage.score",
        "stage.metrics",
    }
    assert len(list((folder / ".lethe/mlruns").rglob("stages/metrics/npo.parquet"))) == 1
    assert len(list((folder / ".lethe/mlruns").rglob("stages/metrics/npo.json"))) == 1
    assert len(list((folder / ".lethe/mlruns").rglob("stages/unlearn/training.json"))) == 1
    assert {run.info.status for run in held} == {"FINISHED"}


def test_tables_of_questions_answers_and_metrics(folder):
    tracking.log_new(folder)
    questions = kept_table(folder, "questions.json")
    assert [(row["prompt_id"], row["question"]) for row in questions] == [
        (key, f"Who is {key}?") for key in "abc"
    ]
    assert [(row["m_bin"], row["mean"]) for row in questions] == [
        (0.5, 0.5),
        (0.1, 0.9),
        (0.01, 0.99),
    ]
    assert list(questions[0]).index("m_bin") < list(questions[0]).index("mean"), "leaks first"
    first, second = kept_table(folder, "worst_answers.json")
    assert (first["prompt_id"], second["prompt_id"]) == ("a", "b"), (
        "the 0/1 score comes first, 0 is left out"
    )
    assert first["worst_answer"] == "the <U+202E>answer␛[31m <b>|", "invisible characters are named"
    assert (first["drawn"], first["answers"], first["keyword"], first["expected"]) == (
        2,
        6,
        1,
        "It is a.",
    )
    assert second["worst_answer"] == "b one"
    shown = json.loads(tags(folder, "npo")["mlflow.loggedArtifacts"])
    assert {"path": "worst_answers.json", "type": "table"} in shown
    entry = next(entry for entry in entries.read_entries(folder) if entry.name == "npo")
    numbers = {row["metric"]: row for row in tracking.tables.metrics(entry).to_dict("records")}
    assert numbers["m_bin_worst"]["alpha"] == WORST_BOUND.alpha
    assert numbers["max"]["exact"] == 0.75
    assert not {"sd", "judge_fits"} & set(numbers), "missing, and no number"


def test_the_verdict_is_the_description_and_comes_later_without_a_new_run(folder):
    tracking.log_new(folder)
    assert "mlflow.note.content" not in tags(folder, "npo")
    write_summary(folder, "leaks")
    assert tracking.log_new(folder) == ""
    assert runs(folder) == ["npo", "other"]
    told = tags(folder, "npo")
    assert told["lethe.standing"] == "leaks"
    assert "At most 50% \\<script\\> of answers \\|" in told["mlflow.note.content"]
    assert "leaks" in tags(folder, "pipeline")["mlflow.note.content"]
    assert len(list((folder / ".lethe/mlruns").rglob("report/summary.json"))) == 1


def test_a_pipeline_says_what_changed(folder):
    write_summary(folder, "leaks, intact")
    tracking.log_new(folder)
    (folder / "params.yaml").write_text("sample: {n: 16, scorers: [a, b]}\nnothing: {}\n")
    write_results(folder, 0.5, replace(WORST_BOUND, value=0.75))
    changed = yaml.safe_load(yaml.safe_dump(LOCK))
    changed["stages"]["metrics@npo"]["outs"][1]["md5"] = "new"
    write_lock(folder, changed)
    write_summary(folder, "forgot, intact", 0.75, 0.5)
    assert tracking.log_new(folder) == "MLflow: 1 new run."
    assert len(runs(folder, parents=True)) == 2
    npo, before = (run.data.tags for run in logged(folder) if own(run.info.run_name) == "npo")
    assert (npo["lethe.standing"], npo["lethe.before"]) == ("forgot, intact", "leaks, intact")
    assert "lethe.before" not in before
    pipeline = tags(folder, "pipeline")["lethe.standing"]
    assert (pipeline.partition(";")[0], "1 forgot" in pipeline) == ("changed: npo", True)
    said = tags(folder, "pipeline")["mlflow.note.content"]
    assert f"| sample.n{GAP} | 8{GAP} | 16 |" in said
    assert f"| m_bin_worst{GAP} | 0.5{GAP} | 0.75 |" in said
    assert said.count("[other](") == 1, "as before: in the list of models alone"


def test_only_what_is_new(folder, monkeypatch):
    tracking.log_new(folder)
    monkeypatch.setattr(tracking, "_log", None)  # a cache hit does not come as far
    assert tracking.log_new(folder) == ""
    changed = yaml.safe_load(yaml.safe_dump(LOCK))
    changed["stages"]["score@npo"]["deps"].append({"path": "lethe/steps/score.py", "md5": "code"})
    write_lock(folder, changed)
    assert tracking.log_new(folder) == "", "an edit that changes no output"
    monkeypatch.undo()
    changed["stages"]["unlearn@npo"]["params"]["params.yaml"]["unlearn.methods.npo"]["lr"] = 0.2
    write_lock(folder, changed)
    assert tracking.log_new(folder) == "MLflow: 1 new run."
    write_lock(folder, LOCK)
    assert tracking.log_new(folder) == "", "back to what was logged before"
    (folder / ".lethe/tracked.json").unlink()
    assert tracking.log_new(folder) == "", "the store itself knows when the note is lost"
    assert runs(folder).count("npo") == 2
    assert len(runs(folder, parents=True)) == 2


@pytest.mark.parametrize(
    ("unfinished", "left"),
    [
        ({"unlearn@npo": "failed", "score@npo": "blocked", "metrics@npo": "blocked"}, {"npo"}),
        ({"epsilon_star@npo": "failed"}, {"npo"}),  # nothing but the report reads it
        (
            {"sample@npo": "blocked", "metrics@other": "blocked", "report": "blocked"},
            {"npo", "other"},
        ),
        ({"attack@npo": "failed", "judge@other": "failed", "unlearn@third": "failed"}, set()),
    ],
)
def test_what_a_run_did_not_measure_is_not_logged_with_the_results_of_the_run_before(
    folder, unfinished, left
):
    line = tracking.log_new(folder, unfinished=unfinished)
    assert set(runs(folder)) == {"npo", "other"} - left
    assert {name for name in ("npo", "other") if name in line} == left
    assert len(line.splitlines()) == 1
    tracking.log_new(folder)
    assert runs(folder) == ["npo", "other"], "each once, by the run that measures them"


def test_words_and_comparisons_of_a_stage_that_did_not_finish_are_left_out(folder):
    write_summary(folder)

    def npo(*unfinished):
        (entry,) = (
            entry for entry in entries.read_entries(folder, unfinished) if entry.name == "npo"
        )
        return entry.standing, entry.numbers.get("forget_quality")

    assert npo() == ("leaks", 0.75)
    assert npo("report") == ("", 0.75)
    assert npo("report", "compare") == ("", None)


def test_a_run_half_logged_is_logged_again(folder):
    tracking.log_new(folder)
    for run in logged(folder):
        if own(run.info.run_name) in ("npo", "pipeline"):
            store_of(folder).update_run(run.info.run_id, status="RUNNING")
    (folder / ".lethe/tracked.json").unlink()
    assert tracking.log_new(folder) == "MLflow: 1 new run."
    assert runs(folder).count("npo") == 1
    assert len(runs(folder, parents=True)) == 1


def test_a_server_that_is_down_costs_seconds_and_loses_nothing(folder, monkeypatch, empty_store):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    asked, answers = [], tracking.answers
    monkeypatch.setattr(tracking, "answers", lambda uri: asked.append(uri) or answers(uri))
    said = tracking.log_new(folder)
    assert asked == ["http://127.0.0.1:9"], "asked once"
    assert "127.0.0.1:9 does not answer" in said
    assert said.endswith("MLflow: 2 new runs.")
    assert "2 new" not in tracking.log_new(folder), "not twice into the local store"
    # The server comes back: another store stands in for it.
    (folder / "server.db").write_bytes(empty_store)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'server.db'}")
    assert tracking.log_new(folder) == "MLflow: 2 new runs."
    assert runs(folder, "server.db") == runs(folder)


def test_the_password_of_a_server_is_neither_told_nor_kept(folder, monkeypatch):
    address = "http://user:s3cret@127.0.0.1:9/path"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr(tracking, "_log", lambda *_: 2)
    said = tracking.log_new(folder)
    assert said.startswith("MLflow: http://127.0.0.1:9/path does not answer")

    def refuse(entries, uri, *_):
        if uri == address:
            raise OSError(f"no way to {uri}")
        return 2

    monkeypatch.setattr(tracking, "_log", refuse)
    monkeypatch.setattr(tracking, "answers", lambda uri: True)
    failed = tracking.log_new(folder)
    assert "http://127.0.0.1:9/path failed (no way to http://127.0.0.1:9/path)" in failed
    tracking.remember(tracking.without_password(address), ["f"], folder)
    kept = (folder / ".lethe/tracked.json").read_text()
    assert "127.0.0.1:9/path" in kept
    assert "s3cret" not in said + failed + kept


def test_a_server_that_answers_nonsense(folder, monkeypatch):
    with answering_server(500) as port:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        said = tracking.log_new(folder)
    assert "failed" in said
    assert said.endswith("MLflow: 2 new runs.")


def test_a_broken_store_does_not_stop_the_pipeline(folder):
    (folder / "mlflow.db").write_text("no database")
    assert tracking.log_new(folder).startswith(f"MLflow: {folder / 'mlflow.db'} is no database")


def test_off(folder, monkeypatch):
    monkeypatch.setenv("LETHE_TRACKING", "off")
    assert tracking.log_new(folder) == ""
    assert runs(folder) == []
