"""Faults of a machine for the tests: a full disk, a read-only folder, a server that hangs."""

import contextlib
import http.server
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.miniature import Repository, command_of, processes_of, wait_until


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """A file system of its own at ``folder``; only root may mount one."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user cannot mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave: int) -> Path:
    """A file that takes the whole disk of ``folder`` but ``leave`` bytes."""
    free = os.statvfs(folder)
    ballast = folder / "ballast"
    with open(ballast, "wb") as file:
        file.write(bytes(max(0, free.f_bavail * free.f_frsize - leave)))
    return ballast


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """``folder`` takes no file, not even from root where root can mount."""
    if os.getuid():
        folder.chmod(0o555)
        try:
            yield
        finally:
            folder.chmod(0o755)
        return
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True).returncode:
        pytest.skip("root cannot mount here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.contextmanager
def hanging_server() -> Iterator[int]:
    """A server that takes connections and never answers; yields its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield listening.getsockname()[1]


@contextlib.contextmanager
def answering_server(status: int, seconds: float = 0.0) -> Iterator[int]:
    """A server that answers every request with this status after some seconds; yields its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(seconds)
            self.send_error(status)

        do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def contents(repository: Repository) -> dict[str, bytes]:
    data = repository.folder / "data"
    files = [path for path in data.rglob("*") if path.is_file() and path.name != ".gitignore"]
    return {str(path.relative_to(data)): path.read_bytes() for path in files}


def whys(out: str) -> dict[str, str]:
    return {name: end["why"] for name, end in json.loads(out)["stages"].items()}


def done(repository: Repository, **extra: str) -> dict[str, str]:
    """Run to the end; return how each stage ended."""
    result = repository.lethe("run", "--json", **extra)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return whys(result.stdout)


def pid_of_module(repository: Repository, module: str) -> int:
    return next(pid for pid in processes_of(repository) if module in command_of(pid).split()[:4])


def waiting(repository: Repository, stage: str, *arguments: str, **extra: str) -> subprocess.Popen:
    """Start a run and return while ``stage`` waits."""
    (repository.folder / "slow").write_text(stage)
    process = repository.start("run", "--json", *arguments, **extra)
    wait_until(lambda: (repository.folder / "alive").exists(), seconds=400)
    return process


def go_on(repository: Repository, process: subprocess.Popen) -> tuple[str, str]:
    (repository.folder / "slow").unlink()
    return process.communicate(timeout=300)
