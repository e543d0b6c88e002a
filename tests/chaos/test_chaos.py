"""A short `make chaos` on the miniature pipeline, and the parts of the harness."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from flows import workspace
from tests.chaos import pipeline_copy
from tests.chaos.cases import MARK, SIGNALS, VICTIMS, case, is_a, marked
from tests.chaos.disturbed import differences, disturb
from tests.flows.miniature import make


@pytest.fixture
def copy(tmp_path) -> pipeline_copy.Copy:
    """The miniature after an undisturbed run with a server of its own; ``took``: its seconds."""
    small = make(tmp_path / "mini", {"PREFECT_HOME": str(tmp_path / "mini/.lethe/prefect")}, methods=["npo"])
    small.environment["LETHE_TRACKING"] = "off"
    workspace.prepare(small.folder)
    copy = pipeline_copy.Copy(small.folder, small.environment)
    began = time.monotonic()
    assert copy.start("undisturbed").wait() == 0, copy.said()
    copy.took = time.monotonic() - began
    return copy


@pytest.mark.slow
def test_killed_runs_end_with_the_bytes_of_an_undisturbed_one(copy):
    reference, seconds = copy.hashes(), copy.stages()
    overhead = max(
        1.0, copy.took - sum(seconds.values()) / 2
    )  # a run's start and end, on this machine as it is now
    for number in (0, 4):  # the flow by SIGKILL, the server by SIGTERM
        drawn = case(number, 1, list(seconds), ("flow", "server", "stage"))
        ended = disturb(drawn, copy, copy.graph(), reference, seconds, overhead, {}, lambda *_: None)
        assert not ended.wrong, ended
        assert ended.killed


def test_the_cases_are_those_of_their_seed():
    stages = ["prepare", "report"]
    cases = [case(number, 0, stages) for number in range(50)]
    assert cases == [case(number, 0, stages) for number in range(50)]
    assert cases != [case(number, 1, stages) for number in range(50)]
    kinds = [(one.victim, one.signal) for one in cases]
    assert {kind: kinds.count(kind) for kind in kinds} == {(v, s): 5 for v in VICTIMS for s in SIGNALS}
    assert {one.tracking for one in cases} == {True, False}


def test_a_difference_of_one_file_is_found():
    reference = {"a": "1", "b": "2", "c": "3"}
    assert differences(reference, dict(reference)) == []
    assert differences(reference, {"a": "1", "b": "x", "d": "4"}) == [
        "c is missing",
        "d is left over",
        "b has other bytes",
    ]


def test_a_process_is_found_by_its_mark_also_after_its_parent_died():
    script = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    mark = f"test-{os.getpid()}"
    subprocess.run([sys.executable, "-c", script], env=os.environ | {MARK: mark}, check=True)
    (orphan,) = marked(mark)
    os.kill(orphan, signal.SIGKILL)


def test_victims_are_told_apart_by_their_commands():
    commands = {
        "server": ["python", "-m", "flows.server", "7"],
        "dvc": ["python", "-m", "flows.dvc_child", "repro", "x"],
        "stage": ["python", "-m", "stages.sample", "npo"],
    }
    for victim in commands:
        assert [name for name in commands if is_a(victim, commands[name])] == [victim]
    assert is_a("stage", ["python", "step.py", "data/report"])


@pytest.mark.slow
def test_all_behind_a_stage_is_forgotten(copy, monkeypatch):
    graph = copy.graph()
    assert pipeline_copy.behind(graph, "prepare") == set(graph)
    stale = pipeline_copy.behind(graph, "metrics@npo")
    assert stale == {"metrics@npo", "report"}
    before = copy.hashes()
    copy.forget(stale)
    after = copy.hashes()
    gone = {"metrics/npo.json", "results/metrics/npo.parquet"}
    assert set(before) - set(after) == gone | {"report/text", "report/training.json", "report/summary.json"}
    monkeypatch.chdir(copy.folder)
    assert set(workspace.read_graph(copy.folder).behind()) == stale
