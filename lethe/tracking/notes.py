"""The record, in .lethe, of what was logged where, so that a pipeline with nothing new need not ask the store."""

from __future__ import annotations

import contextlib
import fcntl
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from lethe.errors import BadInput
from lethe.io.json_files import read_json, write_json

PATIENCE = 2.0  # seconds a server may take to accept a connection


def known(server: str, home: Path) -> set[str]:
    """The states recorded as logged at ``server``, an address without a password."""
    return set(_tracked(home).get(server, []))


def remember(server: str, states: Iterable[str], home: Path) -> None:
    """Record states as logged."""
    tracked = _tracked(home)
    tracked[server] = sorted({*tracked.get(server, []), *states})
    write_json(home / ".lethe" / "tracked.json", tracked)


def _tracked(home: Path) -> dict[str, list[str]]:
    """The record; a damaged record is empty, because the store itself knows which runs it has."""
    path = home / ".lethe" / "tracked.json"
    try:
        found = read_json(path) if path.exists() else {}
    except BadInput:
        return {}
    whole = isinstance(found, dict) and all(isinstance(states, list) for states in found.values())
    return found if whole else {}


def answers(uri: str) -> bool:
    """Whether a tracking server accepts connections; files and databases always do."""
    address = urlsplit(uri)
    if address.scheme not in ("http", "https"):
        return True
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def in_turn(home: Path) -> Iterator[None]:
    """Hold a lock, so that two pipelines that end together log one after the other."""
    path = home / ".lethe" / "tracking.lock"
    path.parent.mkdir(exist_ok=True)
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
