"""Outputs that DVC took from its cache or a remote, compared with their hashes.

DVC trusts every write-protected file of its cache, so a file that the disk has damaged would come back as a result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dvc.repo import Repo

MD5 = "md5"  # the only hash that new DVC repositories use


def outputs_of(repo: Repo, stages: Collection[str]) -> list[Any]:
    """Return DVC's outputs of the stages with these names."""
    return [out for stage in repo.index.stages if getattr(stage, "name", "") in stages for out in stage.outs]


def mend_locks(root: Path) -> None:
    """Remove DVC's record of who reads and writes what if a full disk or a kill left it half written.

    DVC writes the record anew under a lock file, and refuses every command while it cannot read it. The record names running
    processes alone, so nothing is lost.
    """
    from dvc.lock import make_lock

    folder = root / ".dvc" / "tmp"
    record = folder / "rwlock"
    if not record.is_file():
        return
    with make_lock(str(folder / "rwlock.lock"), tmp_dir=str(folder)):
        try:
            json.loads(record.read_text(encoding="utf-8"))
        except ValueError:
            record.unlink()


def other_command(root: Path, patience: float = 3) -> str:
    """Return the DVC command of another process that works in this folder, with its number; empty if there is none.

    The children of a run that was killed end within ``patience`` seconds.
    """
    until = time.monotonic() + patience
    while command := _working(root / ".dvc" / "tmp" / "rwlock"):
        if time.monotonic() > until:
            return command
        time.sleep(0.2)
    return ""


def _working(record: Path) -> str:
    """Return the first live process in DVC's record of who reads and writes what."""
    try:
        users = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    working = [
        *users.get("write", {}).values(),
        *(user for some in users.get("read", {}).values() for user in some),
    ]
    return next((command for user in working if (command := _command(user["pid"]))), "")


def holder(root: Path) -> str:
    """Return the DVC command that holds the lock of the whole folder, with its number; empty if it has ended."""
    try:
        return _command(int((root / ".dvc" / "tmp" / "lock").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return ""


def _command(pid: int) -> str:
    """Return the command line of another live process; empty once it has ended."""
    try:
        words = Path("/proc", str(pid), "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return ""
    command = " ".join(os.path.basename(word) if "/" in word else word for word in words if word)
    return f"`{command}` (process {pid})" if command and pid != os.getpid() else ""


def damaged(outs: Iterable[Any]) -> Iterator[Any]:
    """Yield DVC's outputs whose content is not that of their hash, after their removal here and in the cache."""
    for out in outs:
        if not out.use_cache or not out.hash_info or out.hash_info.name != MD5 or not os.path.exists(out.fs_path):
            continue
        wrong = list(_wrong(out))
        if not wrong:
            continue
        for name in wrong:
            cached = out.cache.oid_to_path(name)
            with contextlib.suppress(FileNotFoundError):
                if _md5(cached) != name.removesuffix(".dir"):  # a good object only has a damaged copy here
                    os.unlink(cached)
        if os.path.isdir(out.fs_path) and not os.path.islink(out.fs_path):
            shutil.rmtree(out.fs_path)
        else:
            os.unlink(out.fs_path)
        yield out


def _wrong(out: Any) -> Iterator[str]:
    """Yield the names in the cache whose content is not that of the name."""
    name = out.hash_info.value
    if not name.endswith(".dir"):
        if _md5(out.fs_path) != name:
            yield name
        return
    listing = out.cache.oid_to_path(name)
    try:
        with open(listing, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != name.removesuffix(".dir"):
        yield name
        return
    for entry in json.loads(content):
        path = os.path.join(out.fs_path, *entry["relpath"].split("/"))
        if os.path.exists(path) and _md5(path) != entry["md5"]:
            yield entry["md5"]


def _md5(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
