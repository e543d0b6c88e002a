"""What got worse: bounds and verdicts, the command of params, the gate of `lethe run`."""

from __future__ import annotations

import json
import sys

import pytest

from flows.alarm import Alarm, alarms, as_json, as_markdown, notify
from flows.record import Change, RunRecord
from lethe.io.json_files import write_json
from tests.flows.records import flow_runs, mlflow_runs

SIDES = {"m_bin_worst": "upper", "m_sigma_worst": "upper", "leak_at_1000_worst_lower": "lower"}


def news(*changes):
    return RunRecord("2026-01-02", True, {}, "2026-01-01", list(changes), None, "2026-01-02", {})


@pytest.fixture
def root(tmp_path):
    for model in ("npo", "base"):
        bounds = {"metrics": {name: {"side": side} for name, side in SIDES.items()}}
        (tmp_path / "data/curves" / model).mkdir(parents=True)
        write_json(tmp_path / "data/curves" / model / "bounds.json", bounds)
    return tmp_path


@pytest.mark.parametrize(
    ("metric", "before", "after", "kind", "worse"),
    [
        ("m_bin_worst", 0.01, 0.02, "bound", True),
        ("m_bin_worst", 0.02, 0.01, "bound", False),
        ("binary_any", 0, 3, "verdict", True),
        ("binary_any", 3, 0, "verdict", False),
    ],
)
def test_a_bound_that_passes_its_last_value_and_a_verdict_that_changes(root, metric, before, after, kind, worse):
    assert alarms(news(Change("npo", metric, before, after)), root) == [
        Alarm("npo", metric, kind, before, after, worse)
    ]


@pytest.mark.parametrize(
    "change",
    [
        Change("npo", "m_sigma_worst", 0.1, 0.2),
        Change("npo", "leak_at_1000_worst_lower", 0.1, 0.2),
        Change("npo", "mean", 0.1, 0.2),
        Change("npo", "binary_any", 2, 3),
        Change("npo", "m_bin_worst", None, 0.2),
        Change("npo", "m_bin_worst", 0.2, None),
        Change("base", "m_bin_worst", 0.1, 0.2),
        Change("unknown", "m_bin_worst", 0.1, 0.2),
    ],
)
def test_what_is_no_leak_is_no_alarm(root, change):
    assert alarms(news(change), root, ("base", None)) == []


def test_the_command_gets_the_change_and_its_failure_is_a_sentence(root):
    found = alarms(news(Change("npo", "m_bin_worst", 0.01, 0.02)), root)
    value = as_json(found, news(), root)
    out = root / "told.json"
    copy = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"
    assert notify([sys.executable, "-c", copy], value) == ""
    told = json.loads(out.read_text())
    assert (told["schema"], told["worse"], told["compared_with"]) == (1, True, "2026-01-01")
    assert told["changes"] == [
        {"model": "npo", "metric": "m_bin_worst", "kind": "bound", "before": 0.01, "after": 0.02, "worse": True}
    ]
    assert "exit status 3 (oh)" in notify(
        [sys.executable, "-c", "import sys; print('oh', file=sys.stderr); sys.exit(3)"], value
    )
    assert "could not" in notify([str(root / "nowhere")], value)
    assert as_markdown(found) == "- **worse** npo: m_bin_worst rose from 0.01 to 0.02."


@pytest.mark.slow
def test_a_run_that_got_worse_closes_the_gate_marks_and_tells(repository):
    folder = repository.folder
    copy = "import sys; open('told.json', 'w').write(sys.stdin.read())"
    command = json.dumps([sys.executable, "-c", copy])
    (folder / "params.yaml").write_text(repository.params() + f"\nnotify: {{command: {command}}}\n")
    (folder / "data/curves/npo").mkdir(parents=True)
    write_json(folder / "data/curves/npo/bounds.json", {"metrics": {"mean": {"side": "upper"}}})
    first = repository.lethe("run", "--fail-on", "worse", "-S", "metrics.alpha=0.02")
    assert first.returncode == 0, first.stderr
    worse = repository.lethe("run", "--fail-on", "worse", "-S", "metrics.alpha=0.025", "--json")
    assert worse.returncode == 1, worse.stderr
    (alarm,) = json.loads(worse.stdout)["alarms"]
    assert (alarm["model"], alarm["before"], alarm["after"], alarm["worse"]) == ("npo", 4, 5, True)
    assert json.loads((folder / "told.json").read_text())["changes"] == [alarm]
    changes = [run.data.tags.get("lethe.change") for run in mlflow_runs(repository)]
    assert [change for change in changes if change] == ["worse"]
    assert flow_runs(repository)[-1].state_name == "Worse"
    (folder / "told.json").unlink()
    better = repository.lethe("run", "--fail-on", "worse", "-S", "metrics.alpha=0.02")
    assert better.returncode == 0, better.stderr
    assert "Better: npo: mean fell from 5 to 4." in better.stdout
    assert not json.loads((folder / "told.json").read_text())["worse"]
