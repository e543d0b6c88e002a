"""Faults of a machine for the tests: a full disk, a read-only folder, a server that hangs."""

import contextlib
import http.server
import os
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.miniature import Repository, command_of, processes_of


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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=10).close()
    except OSError:
        return False
    return True


def pid_of_module(repository: Repository, module: str) -> int:
    return next(pid for pid in processes_of(repository) if module in command_of(pid).split()[:4])
