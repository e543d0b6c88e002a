"""More faults of a machine than the suite has time for; `python -m tests.benchmarks faults` runs these."""

import json
import os
import signal
import subprocess
import sys

import pytest

from flows import workspace
from tests.flows.faults import (
    answering_server,
    answers,
    fill,
    free_port,
    hanging_server,
    read_only,
    small_disk,
)
from tests.flows.miniature import ends, one_branch, processes_of, wait_until


def test_a_run_whose_prefect_server_goes_ends_well_and_says_so_once(small, tmp_path):
    """The user's own server: the stages need it for nothing but the record."""
    home = tmp_path / "their-prefect"
    port = free_port()
    command = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"]
    environment = small.environment | {"PREFECT_HOME": str(home)}
    environment.pop("PREFECT_API_URL", None)
    server = subprocess.Popen(
        [sys.executable, "-m", *command], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        small.environment["PREFECT_API_URL"] = f"http://127.0.0.1:{port}/api"
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/api/health"), seconds=400)
        process = small.waiting("models/npo")
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    out, err = small.go_on(process)
    assert process.returncode == 0, err
    assert set(ends(out).values()) == {"ran"}
    assert err.count("The Prefect server stopped answering") == 1
    assert "Traceback" not in err
    assert len(err.splitlines()) < 30, err
    small.use_its_own_server()
    assert set(small.ran().values()) == {"clean"}


def test_a_server_that_cannot_live_is_named_with_its_log(small):
    small.use_its_own_server()
    home = small.prefect_home = small.folder / ".lethe/prefect"
    small.environment["PREFECT_HOME"] = str(home)
    home.mkdir(parents=True)
    (home / "prefect.db").write_text("no database " * 1000)
    result = small.lethe("run")
    assert result.returncode == 1
    assert ".lethe/prefect/server.log" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (small.folder / "data/dataset").exists()
    (home / "making-tables").write_text("begun")  # as a server leaves it that was killed while it made the tables
    assert set(small.ran().values()) == {"ran"}


@pytest.mark.parametrize("leave", [0, 50_000, 400_000, 1_500_000])
def test_a_full_disk_is_one_sentence_and_the_next_run_is_right(tmp_path, prefect, leave):
    """``leave``: free bytes when the run begins; the more, the later the disk is full."""
    with small_disk(tmp_path / "disk", 24):
        small = one_branch(tmp_path / "disk/mini", prefect)
        small.use_its_own_server()
        small.environment["PREFECT_HOME"] = str(small.folder / ".lethe/prefect")
        ballast = fill(tmp_path / "disk", leave)
        result = small.lethe("run")
        assert result.returncode == 1, result.stderr
        assert "Traceback" not in result.stderr
        assert len(result.stderr.splitlines()) < 20, result.stderr
        assert not list(processes_of(small))
        ballast.unlink()
        assert set(small.ran().values()) <= {"ran", "clean", "restored"}
        assert json.loads((small.folder / "data/metrics/npo.json").read_text())["text"] == "0.01"
        assert not list((small.folder / "data").rglob("*.tmp"))


def test_a_read_only_repository_is_named(small):
    workspace.prepare(small.folder)
    with read_only(small.folder):
        result = small.lethe("run")
    assert result.returncode in (1, 2)
    assert str(small.folder) in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) < 5


@pytest.mark.parametrize("fault", ["hangs", "500", "slow 503"])
def test_mlflow_with_a_fault_costs_seconds_and_no_result(repository, fault):
    server = hanging_server() if fault == "hangs" else answering_server(int(fault[-3:]), 0.5 * ("slow" in fault))
    with server as port:
        extra = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}", "MLFLOW_HTTP_REQUEST_TIMEOUT": "2"}
        result = repository.lethe("run", "--json", **extra)
    assert result.returncode == 0, result.stderr
    assert set(ends(result.stdout).values()) == {"ran"}
    assert f"127.0.0.1:{port} failed" in result.stderr
    assert "MLflow: 2 new runs." in result.stderr
    assert "Traceback" not in result.stderr
