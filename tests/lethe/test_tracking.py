"""Runs in MLflow: each model once, nothing lost when the server is down."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import yaml

from lethe import tracking
from lethe.io.files import write_json
from lethe.results import table
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.tracking import entries
from lethe.verdict.finding import FORGETTING, QUANTITY, Finding
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


def write_summary(folder: Path, standing: str = "leaks", mean: float = 0.25) -> None:
    """The words on npo, as the stage `compare` writes them and as the report repeats them."""
    told = {"standing": standing, "verdict": VERDICT, "metrics": {"mean": mean}}
    write_json(folder / "data/report/summary.json", {"models": {"npo": told}})
    details = {"title": standing, "attention": False, "verdict": None}
    word = Finding("npo", FORGETTING, standing.partition(",")[0], VERDICT, details=details)
    place = table.place(folder / "data", "compare", "models")
    compared = [row for row in table.read_rows(place) if row.quantity != QUANTITY]
    table.write(place, [*compared, word.row()])


def write_lock(folder: Path, lock: dict) -> None:
    (folder / "dvc.lock").write_text(yaml.safe_dump(lock))


def store_of(folder: Path, store: str = "mlflow.db") -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{folder / store}")


def logged(folder: Path, store: str = "mlflow.db") -> list[Run]:
    client = store_of(folder, store)
    return list(
        client.search_runs(
            [experiment.experiment_id for experiment in client.search_experiments()],
            max_results=1000,
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


@pytest.mark.slow
def test_the_scores_of_a_twin_test_are_no_table_of_results(folder):
    scores = pd.DataFrame({"secret": ["s"], "candidate": ["c"], "log_prob": [-1.0]})
    path = folder / "data/twins/npo.parquet"
    path.parent.mkdir()
    scores.to_parquet(path)
    write_results_of_twins(folder)
    outs = [
        {"path": f"data/{place}/npo.parquet", "md5": "t"} for place in ("twins", "results/twins")
    ]
    write_lock(folder, {"stages": LOCK["stages"] | {"twins@npo": {"outs": outs}}})

    entry = next(entry for entry in entries.read_entries(folder) if entry.name == "npo")

    assert any(row.quantity == "trace_p" for row in entry.rows)
    assert path not in [artifact for _, artifact in entry.artifacts]


def write_results_of_twins(folder: Path) -> None:
    row = table.result("npo", "model", "trace_p", "given answers", 0.5)
    table.write(table.place(folder / "data", "twins", "npo"), [row])


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
    measured = {key: value for key, value in npo.metrics.items() if not key.startswith("training/")}
    headlines = {"mean": 0.25, "m_bin_worst": 0.5, "forget_quality": 0.75}
    assert measured == headlines | {"max": 0.75}
    assert npo.metrics.keys() - measured.keys() == {"training/loss"}
    steps = store_of(folder).get_metric_history(below["npo"].info.run_id, "training/loss")
    assert (len(steps), max(step.step for step in steps)) == (700, 699)
    told = tags(folder, "npo")
    (guarantees,) = (folder / ".lethe/mlruns").rglob("guarantees.txt")
    assert guarantees.read_text() == f"m_bin_worst: {WORST_BOUND.sentence(of='the questions')}\n"
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
    write_summary(folder, "forgot, intact", 0.5)
    assert tracking.log_new(folder) == "MLflow: 1 new run."
    assert len(runs(folder, parents=True)) == 2
    npo, before = (run.data.tags for run in logged(folder) if own(run.info.run_name) == "npo")
    assert (npo["lethe.standing"], npo["lethe.before"]) == ("forgot, intact", "leaks, intact")
    assert "lethe.before" not in before
    pipeline = tags(folder, "pipeline")["lethe.standing"]
    assert (pipeline.partition(";")[0], "1 forgot" in pipeline) == ("changed: npo", True)
    from lethe.tracking.runs import GAP

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


@pytest.mark.slow
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
    assert npo("report") == ("leaks", 0.75)
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
    asked = []
    answers = tracking.answers
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


def logged_models(folder: Path, query: str | None = None, **more) -> list:
    client = store_of(folder)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return list(client.search_logged_models(experiments, filter_string=query, **more))


def test_models_are_found_by_a_bound_on_their_data(folder):
    tracking.log_new(folder)
    (data,) = {
        (metric.dataset_name, metric.dataset_digest)
        for model in logged_models(folder)
        for metric in model.metrics
    }
    named = [dict(zip(("dataset_name", "dataset_digest"), data, strict=True))]

    found = logged_models(folder, "metrics.m_bin_worst < 0.6", datasets=named)
    tighter = logged_models(folder, "metrics.m_bin_worst < 0.4", datasets=named)

    assert [model.name for model in found] == ["npo"]
    assert tighter == []
    assert data[0] == "forget"


def test_a_logged_model_is_ready_and_linked_with_its_run(folder):
    tracking.log_new(folder)
    npo = next(model for model in logged_models(folder) if model.name == "npo")

    run = store_of(folder).get_run(npo.source_run_id)

    assert (str(npo.status), npo.model_type) == ("READY", "unlearned")
    assert [entry.model_id for entry in run.inputs.model_inputs] == [npo.model_id]
    assert [entry.dataset.name for entry in run.inputs.dataset_inputs] == ["forget"]
    assert run.data.metrics["m_bin_worst"] == 0.5


def test_the_model_of_a_run_half_logged_is_gone(folder):
    tracking.log_new(folder)
    client = store_of(folder)
    for run in logged(folder):
        client.update_run(run.info.run_id, "RUNNING")
    (folder / ".lethe/tracked.json").unlink()

    tracking.log_new(folder)

    assert sorted(model.name for model in logged_models(folder)) == ["npo", "other"]


@pytest.fixture
def labelling(folder, monkeypatch):
    """A queue of the answers of npo, and its labels."""
    from lethe.labels.draws import DrawnAnswers
    from lethe.labels.labels import AnswerText, Labels
    from lethe.labels.queue import Queue

    monkeypatch.chdir(folder)
    texts = ["often", "rare", WORST, "third"] * 5
    draws = DrawnAnswers({"a": [AnswerText("a", text) for text in texts]}, {"a": "Who?"}, {})
    return Queue(draws, 0.9, 3), Labels(folder / "labels.jsonl")


def judge(answer, value):
    """Give feedback on the trace of an answer, as a person does on MLflow's page."""
    import mlflow
    from mlflow.entities import AssessmentSource

    from lethe.tracking import feedback

    mlflow.set_tracking_uri(tracking.store(Path.cwd()))
    try:
        experiment = mlflow.get_experiment_by_name("lethe labels").experiment_id
        traces = mlflow.search_traces(locations=[experiment], return_type="list")
        digest = feedback.digest_of(answer, {"a": "Who?"})
        (trace,) = [
            candidate for candidate in traces if candidate.info.tags[feedback.ANSWER] == digest
        ]
        source = AssessmentSource("HUMAN", "anna")
        mlflow.log_feedback(trace_id=trace.info.trace_id, name="leaks", value=value, source=source)
    finally:
        mlflow.set_tracking_uri(None)


def test_feedback_of_a_person_comes_back_as_labels_in_the_order_of_the_queue(labelling):
    from lethe.tracking import feedback

    queue, labels = labelling
    feedback.show(queue, labels)
    judge(queue.chosen[0], False)
    judge(queue.chosen[2], True)

    first = feedback.take(queue, labels)
    judge(queue.chosen[1], True)
    second = feedback.take(queue, labels)

    assert "1 new label " in first
    assert "1 feedback waits" in first
    assert "2 new labels" in second
    assert [labels.by_answer[answer] for answer in queue.chosen[:3]] == [0, 1, 1]
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_an_answer_has_one_trace_and_a_label_comes_with_it(labelling):
    from lethe.labels.labels import LabelReason
    from lethe.tracking import feedback

    queue, labels = labelling
    labels.add(queue.chosen[0], 1, LabelReason("mass", 0.9), {})

    first, second = feedback.show(queue, labels), feedback.show(queue, labels)

    labels.undo({}, 1)
    assert f"{len(set(queue.chosen) | {answer for answer, _ in queue.sampled})} new traces" in first
    assert "0 new traces" in second
    assert "1 new label " in feedback.take(queue, labels)


def test_a_model_has_no_more_traces_than_a_person_reads(labelling, monkeypatch):
    from lethe.tracking import feedback

    queue, labels = labelling
    monkeypatch.setattr(feedback, "MOST", 2)

    first, second = feedback.show(queue, labels), feedback.show(queue, labels)

    assert "2 new traces" in first
    assert "0 new traces" in second
    assert "at most 2" in second


@pytest.fixture
def with_verdicts(labelling):
    """Two questions with verdicts: "b" leaks in three draws, twice with the same text, and "a" in one."""
    from lethe.labels.draws import DrawnAnswers
    from lethe.labels.labels import AnswerText
    from lethe.labels.queue import Queue

    _, labels = labelling
    texts = {"a": ["often", "often", "once"], "b": ["one", "two", "two", "clean"]}
    answers = {
        name: [AnswerText(name, text) for text in of_name] for name, of_name in texts.items()
    }
    verdicts = {"a": np.array([0.0, 0, 1]), "b": np.array([1.0, 1, 1, np.nan])}
    return Queue(DrawnAnswers(answers, {}, verdicts), 0.9, 1), labels


def test_the_worst_answers_are_those_that_the_verdicts_call_leaks(with_verdicts, labelling):
    queue, _ = with_verdicts

    worst = [answer.text for answer in queue.worst(50)]

    assert worst == ["two", "one", "once"]
    assert len(queue.worst(1)) == 1
    assert labelling[0].worst(50) == []  # without verdicts


def test_feedback_on_a_worst_answer_is_a_label_at_once(with_verdicts):
    from lethe.tracking import feedback

    queue, labels = with_verdicts
    (worst,) = queue.worst(1)
    feedback.show(queue, labels, worst=1)
    judge(worst, True)

    said = feedback.take(queue, labels, worst=1)

    assert "1 new label " in said
    assert labels.by_answer == {worst: 1}


def test_two_people_who_disagree_make_no_label(labelling):
    from lethe.errors import BadInput
    from lethe.tracking import feedback

    queue, labels = labelling
    feedback.show(queue, labels)
    for value in (True, False):
        judge(queue.chosen[0], value)

    with pytest.raises(BadInput, match="true and false"):
        feedback.take(queue, labels)


def test_a_feedback_that_contradicts_a_label_is_told(labelling):
    from lethe.errors import BadInput
    from lethe.labels.labels import LabelReason
    from lethe.tracking import feedback

    queue, labels = labelling
    feedback.show(queue, labels)
    judge(queue.chosen[0], False)
    labels.add(queue.chosen[0], 1, LabelReason("mass", 0.9), {})

    with pytest.raises(BadInput, match="the label 1"):
        feedback.take(queue, labels)


def test_a_feedback_that_is_no_yes_or_no_is_named(labelling):
    from lethe.errors import BadValue
    from lethe.tracking import feedback

    queue, labels = labelling
    feedback.show(queue, labels)
    judge(queue.chosen[0], "perhaps")

    with pytest.raises(BadValue, match="perhaps"):
        feedback.take(queue, labels)
