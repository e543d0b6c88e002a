"""Outputs that DVC took from its cache or a remote, compared with their hashes.

DVC trusts every write-protected file of its cache, so a file that the disk has damaged would come back as a result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dvc.repo import Repo

MD5 = "md5"  # the only hash that new DVC repositories use


def remove_damaged(root: Path, stage: str) -> list[str]:
    """Remove the damaged outputs of a stage, here and in DVC's cache; return their paths from ``root``.

    DVC then makes them again. An output whose hash is of another kind than MD5 is not compared.
    """
    from dvc.repo import Repo

    # Another process may be rewriting dvc.lock, which DVC empties first; the lock is free again before the hashing.
    with Repo(str(root), _wait_for_lock=True) as repo:
        with repo.lock:
            outs = outputs_of(repo, [stage])
        return [os.path.relpath(out.fs_path, root) for out in damaged(outs)]


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
