"""Stages on a real Ray cluster whose nodes share no folder with the flow; `make check-ray` runs this."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.flows.miniature import Repository, command_of, make, wait_until
from tests.flows.test_shared_machines import all_processes_below, clone_of_sources, contents, ends, with_remote
from tests.small import ROOT

NODES = 2
NODE = (
    *("--block", "--disable-usage-stats", "--num-cpus", "1", "--node-ip-address", "127.0.0.1"),
    *("--object-store-memory", "80000000"),
)


@pytest.fixture
def small(tmp_path: Path) -> Repository:
    """The miniature pipeline, one branch, nothing logged; each run has a Prefect server of its own."""
    repository = make(tmp_path / "mini", {"PREFECT_HOME": str(tmp_path / "prefect")}, methods=["npo"])
    repository.environment |= {"LETHE_TRACKING": "off"}
    return repository


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def cluster(place: Path) -> Iterator[tuple[str, list[Path]]]:
    """A head and one more node, each with a home of its own; yields the address and the homes."""
    port, client, agent, metrics = free_ports(4)
    sockets = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # a socket's path has at most 107 characters
    own = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    started, homes = [], []

    def start(*arguments: str) -> None:
        home = place / f"node-{len(homes)}"
        home.mkdir(parents=True)
        homes.append(home)
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *NODE, *arguments]
        with open(home / "log", "w") as log:
            started.append(
                subprocess.Popen(command, cwd=home, env=own | {"HOME": str(home)}, stdout=log, stderr=log)
            )

    try:
        head = ("--head", "--port", str(port), "--ray-client-server-port", str(client), "--temp-dir", str(sockets))
        start(*head, "--include-dashboard", "false", "--dashboard-agent-listen-port", str(agent))
        wait_until(lambda: answers(client), 120)
        for _ in range(1, NODES):
            start("--address", f"127.0.0.1:{port}", "--dashboard-agent-listen-port", str(metrics))
            wait_until(lambda: "Ray runtime started" in (homes[-1] / "log").read_text(), 120)
        yield f"ray://127.0.0.1:{client}", homes
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)  # it ends the processes of its node
        for process in started:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(sockets, ignore_errors=True)


def test_stages_run_on_ray_without_a_shared_folder_and_survive_the_death_of_a_worker(small, tmp_path):
    local = clone_of_sources(small, tmp_path)
    assert set(ends(local.lethe("run", "--json")).values()) == {"ran"}
    with_remote(small)
    (small.folder / "slow").write_text("models")  # the stage waits for the file of its own copy to go
    with cluster(tmp_path / "cluster") as (address, _):
        run = small.start("run", "--json", "--scheduler", address)

        def waiting() -> list[Path]:
            folders = [Path(folder) for folder, _, files in os.walk(tmp_path / "cluster") if "alive" in files]
            return [folder for folder in folders if folder.name == "pipeline"]

        wait_until(lambda: waiting() or run.poll() is not None, 600)
        assert run.poll() is None, run.communicate()
        (first,) = waiting()
        (own,) = (pid for pid in all_processes_below(first) if "flows.workers" in command_of(pid))
        worker = int(Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split()[1])
        assert command_of(worker).startswith("ray::")
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: [folder for folder in waiting() if folder != first], 600)
        (second,) = (folder for folder in waiting() if folder != first)
        (second / "slow").unlink()
        out, err = run.communicate(timeout=400)
        wait_until(lambda: not [pid for pid in all_processes_below(first) if "step.py" in command_of(pid)])
    assert set(ends(subprocess.CompletedProcess([], run.returncode, out, err)).values()) == {"ran"}
    assert "Traceback" not in err
    assert contents(small) == contents(local)
    print(f"\n{len(contents(small))} files: the bytes of the local run")


def test_a_signal_ends_the_stages_of_ray(small, tmp_path):
    with_remote(small)
    (small.folder / "slow").write_text("models")
    with cluster(tmp_path / "cluster") as (address, _):
        run = small.start("run", "--json", "--scheduler", address)

        def alive() -> list[Path]:
            return [Path(folder) for folder, _, files in os.walk(tmp_path / "cluster") if "alive" in files]

        wait_until(lambda: alive() or run.poll() is not None, 600)
        assert run.poll() is None, run.communicate()
        (place,) = alive()
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=120)
        assert run.returncode == 128 + signal.SIGTERM, err
        assert "Traceback" not in err
        wait_until(lambda: not [pid for pid in all_processes_below(place) if "step.py" in command_of(pid)])


def test_a_cluster_that_does_not_answer_is_one_sentence(small):
    (port,) = free_ports(1)
    nowhere = small.lethe("run", "--scheduler", f"ray://127.0.0.1:{port}")
    assert nowhere.returncode == 1
    assert f"ray://127.0.0.1:{port}: no Ray cluster answers there" in nowhere.stderr
    assert "Traceback" not in nowhere.stderr


def test_a_sweep_runs_by_prefect_ray(small, tmp_path):
    """Its workers see the folder and the Prefect server, as those of a Dask scheduler do."""
    with cluster(tmp_path / "cluster") as (address, _):
        own = small.environment | {"PYTHONPATH": str(ROOT)}
        command = ["sweep", "--name", "two", "--scheduler", address, "--json", "-S", "metrics.alpha=0.0625,0.125"]
        done = subprocess.run(
            [sys.executable, "-m", "lethe", *command],
            cwd=small.folder,
            env=own,
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr
    found = sorted((small.folder / ".lethe/sweeps/two").rglob("data/metrics/npo.json"))
    assert len(found) == 2
