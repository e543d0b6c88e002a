"""The record of a run: what it says about the report."""

import json

import pytest

from flows import record


@pytest.mark.parametrize(("state", "told"), [("Cached", True), ("Completed", True), ("UpstreamFailed", False)])
def test_a_report_of_an_earlier_run_is_not_this_one_s(tmp_path, state, told):
    place = tmp_path / record.REPORT
    place.parent.mkdir(parents=True)
    place.touch()
    written = record.write(tmp_path, {"report": record.StageEnd(state, "x", 0.0)}, complete=told)
    assert (written.report is not None) == told
    assert ("Report: " in record.summary(written)) == told


def test_a_record_comes_back_as_it_was_written_and_names_what_changed(tmp_path):
    place = tmp_path / record.METRICS / "npo.json"
    place.parent.mkdir(parents=True)
    for value in (4.0, 6.0):
        place.write_text(json.dumps({"mean": value}))
        written = record.write(tmp_path, {"metrics@npo": record.StageEnd("Completed", "ran", 1.5)}, complete=True)
    assert record.read(tmp_path) == written
    assert written.changes == [record.Change("npo", "mean", 4.0, 6.0)]
    assert "1 stage: 1 ran\n1 metric changed since" in record.summary(written)
    assert list(json.loads((tmp_path / record.FILE).read_text()))[:3] == ["schema", "finished", "complete"]


@pytest.mark.parametrize("damage", ["{", "[]", '{"stages": 3}', ""])
def test_a_damaged_record_is_set_aside_and_the_run_is_recorded(tmp_path, damage, capsys):
    path = tmp_path / record.FILE
    path.parent.mkdir(parents=True)
    path.write_text(damage)
    written = record.write(tmp_path, {}, complete=True)
    assert written.compared_with is None
    assert record.read(tmp_path) == written
    assert path.with_suffix(".damaged.json").read_text() == damage
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"), [(b"x" * 5000, True), (b"SQLite format 3\0...", False), (b"", False)]
)
def test_a_store_that_is_no_database_is_told(tmp_path, monkeypatch, content, told):
    monkeypatch.delenv("LETHE_TRACKING", raising=False)
    assert record.damaged_store(tmp_path) == ""
    (tmp_path / "mlflow.db").write_bytes(content)
    assert ("mlflow.db" in record.damaged_store(tmp_path)) == told
