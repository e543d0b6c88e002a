"""The record of a run: what it says about the report, what changed, and what the next run compares with."""

import json

import pytest

from flows import record
from flows.record import Alarm, StageEnd, Words
from lethe.io.json_files import write_json
from lethe.results import table

RAN = {"metrics@npo": StageEnd("Completed", "ran", 1.5), "report": StageEnd("Completed", "ran", 1.5)}
WORSE = Alarm("npo", "forgetting", "verdict", "open", "leaks", worse=True, better=False)


def measured(root, mean: float, worst: float = 0.5) -> None:
    rows = table.Rows("npo")
    rows.add("model", "score", "sampled", mean)
    rows.add("question", "score", "sampled", worst, item="q")
    table.write(table.place(root / "data", "metrics", "npo"), rows.rows)


def said(root, **words: str) -> None:
    """The report's summary, with a word on each model."""
    models = {
        name: {"forgetting": {"word": word}, "utility": {"word": "intact"}, "verdict": f"{name}: {word}."}
        for name, word in words.items()
    }
    write_json(root / "data/report/summary.json", {"models": models})


@pytest.mark.parametrize(("state", "told"), [("Cached", True), ("Completed", True), ("UpstreamFailed", False)])
def test_a_report_of_an_earlier_run_is_not_this_one_s(tmp_path, state, told):
    place = tmp_path / record.REPORT
    said(tmp_path, npo="open")
    place.touch()
    written = record.write(tmp_path, {"report": StageEnd(state, "x", 0.0)}, complete=told)
    assert (written.report is not None) == told
    assert bool(written.verdicts) == bool(record.read_verdicts(tmp_path, written.stages)) == told
    assert (str(record.REPORT) in record.summary(written)) == told


def test_a_record_comes_back_as_it_was_written_and_names_what_changed(tmp_path):
    for value in (4.0, 6.0):
        measured(tmp_path, value)
        said(tmp_path, npo="leaks", base="reference")
        written = record.write(tmp_path, RAN, complete=True, changed=[WORSE])
    assert record.read(tmp_path) == written
    assert written.changes == [record.Change("npo", "mean", 4.0, 6.0)]
    assert written.metrics == {"npo": {"mean": 6.0}}
    assert written.verdicts == {"npo": Words("leaks", "intact", "npo: leaks.")}, "a reference has no verdict"
    assert list(json.loads((tmp_path / record.FILE).read_text()))[:3] == ["schema", "finished", "complete"]


def test_the_changed_verdict_is_the_first_line_and_the_verdicts_are_the_last(tmp_path):
    measured(tmp_path, 4.0)
    said(tmp_path, npo="leaks", ours="open")
    lines = record.summary(record.write(tmp_path, RAN, complete=True, changed=[WORSE])).splitlines()
    assert lines[0] == WORSE.line()
    assert "npo" in lines[0]
    assert lines[-2:] == ["npo: leaks.", "ours: open."]


def test_the_next_run_compares_with_the_tables_of_the_last_complete_run(tmp_path):
    for mean, complete in ((4.0, True), (6.0, False)):
        measured(tmp_path, mean)
        written = record.write(tmp_path, RAN, complete)
    kept = table.read(tmp_path / record.LAST_RESULTS)
    assert kept.model("npo").values == {"mean": 4.0}
    assert kept.questions("npo")["q"].values["mean"] == 0.5
    assert written.metrics == {"npo": {"mean": 4.0}}
    assert (written.compared_with, written.changes) == (None, [])
    record.write(tmp_path, RAN, complete=True)
    assert table.read(tmp_path / record.LAST_RESULTS).model("npo").values == {"mean": 6.0}


@pytest.mark.parametrize("damage", ["{", "[]", '{"stages": 3}', ""])
def test_a_damaged_record_is_set_aside_and_the_run_is_recorded(tmp_path, damage, capsys):
    path = tmp_path / record.FILE
    path.parent.mkdir(parents=True)
    path.write_text(damage)
    written = record.write(tmp_path, {}, complete=True)
    assert written.compared_with is None
    assert record.read(tmp_path) == written
    assert path.with_suffix(".damaged.json").read_text() == damage
    assert path.with_suffix(".damaged.json").name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"), [(b"x" * 5000, True), (b"SQLite format 3\0...", False), (b"", False)]
)
def test_a_store_that_is_no_database_is_told(tmp_path, monkeypatch, content, told):
    monkeypatch.delenv("LETHE_TRACKING", raising=False)
    assert record.damaged_store(tmp_path) == ""
    (tmp_path / "mlflow.db").write_bytes(content)
    assert ("mlflow.db" in record.damaged_store(tmp_path)) == told
