"""`lethe ui` serves this folder's runs only on 127.0.0.1 and leaves nothing behind."""

import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.flows.miniature import Repository, wait_until


@pytest.fixture
def folder(tmp_path) -> Path:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    client.create_experiment("lethe", artifact_location=(tmp_path / ".lethe/mlruns").as_uri())
    return tmp_path


def test_serves_on_this_machine_only(folder):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    repository = Repository(folder, {"PREFECT_HOME": str(folder), "PREFECT_API_URL": ""})
    process = repository.start("ui", "--port", str(port))
    try:
        told = [process.stdout.readline() for _ in range(2)]
        wait_until(lambda: answer(port) == 200, seconds=120)
        listening = sockets_of(process.pid)
        assert listening == {f"127.0.0.1:{port}"}
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert answer(port) is None
    for line in told:
        assert f"http://127.0.0.1:{port}/#/experiments/1/runs?" in line


def test_says_what_is_missing(tmp_path):
    repository = Repository(tmp_path, {"PREFECT_HOME": str(tmp_path), "PREFECT_API_URL": ""})
    result = repository.lethe("ui")
    assert result.returncode == 1
    assert "mlflow.db is missing" in result.stderr


def test_port_in_use(tmp_path):
    (tmp_path / "mlflow.db").touch()
    repository = Repository(tmp_path, {"PREFECT_HOME": str(tmp_path), "PREFECT_API_URL": ""})
    with socket.create_server(("127.0.0.1", 0)) as held:
        result = repository.lethe("ui", "--port", str(held.getsockname()[1]))
    assert result.returncode == 2
    assert "--port" in result.stderr


def answer(port: int) -> int | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as reply:
            return reply.status
    except (urllib.error.URLError, OSError):
        return None


def sockets_of(pid: int) -> set[str]:
    """The sockets on which a process and its children listen."""
    import psutil

    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    connections = [connection for process in processes for connection in process.net_connections("inet")]
    return {f"{c.laddr.ip}:{c.laddr.port}" for c in connections if c.status == psutil.CONN_LISTEN}
