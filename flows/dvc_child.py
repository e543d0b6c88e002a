"""DVC's work on one stage, through DVC's interface in Python, in a process that ends with its parent.

``python -m flows.dvc_child JOB DESCRIPTOR``: JOB is ``{"stage": NAME, "pull": BOOL}`` or ``{"save": NAME}``. The answer goes
to the file descriptor as JSON, and the lines of the stage to standard output; DVC itself prints nothing.

DVC reads params.yaml before a stage and after it. During a run, DVC and the stage read the copy that the run made when it
began, so an edit takes effect in the next run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from flows import lock_file
from lethe.errors import LetheError
from lethe.io.files import write_text
from lethe.process import PARAMS, die_with_parent

if TYPE_CHECKING:
    from dvc.output import Output
    from dvc.repo import Repo


BUSY_SECONDS = 20  # a stage ends within ten seconds of its signal (lethe.process.watch)
CLOCKS_DIFFER = 2  # seconds; a process's start is known to the second
Outcome = TypeVar("Outcome")
MD5 = "md5"  # the only hash that new DVC repositories use


def opened(params: os.PathLike[str] | None = None, *, wait: bool = True) -> Repo:
    """Open the repository of this folder; it waits for other DVC processes and reads the run's copy of params.yaml.

    DVC then prints nothing of its own in this process.

    ``params``: that copy, where the environment of this process does not name it. Without ``wait`` a lock that another
    process has is a ``LockError`` within seconds.
    """
    from dvc.fs import LocalFileSystem
    from dvc.repo import Repo

    place = os.path.abspath("params.yaml")
    copy = params or os.environ.get(PARAMS)

    class Files(LocalFileSystem):
        def open(self, path: str | os.PathLike, mode: str = "r", **options: object) -> IO:
            return super().open(copy if os.path.abspath(path) == place else path, mode, **options)

    silence()
    lock_file.write_as_a_whole()
    return Repo(os.getcwd(), fs=Files() if copy else None, _wait_for_lock=wait)


def silence() -> None:
    """Have DVC say nothing but what is fatal."""
    # DVC's lock warns of a killed run.
    for name in ("dvc", "dvc.rwlock", "dvc_data", "dvc_objects"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def status_of_command() -> Iterator[Path]:
    """Yield the file for the exit status of the stage's command, from a shell of our own: DVC words it in a sentence."""
    folder = Path(".dvc", "tmp", f"command-{os.getpid()}").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    shell, status = folder / "sh", folder / "status"
    shell.write_text(
        f'#!/bin/sh\neval "$2"\nstatus=$?\necho $status > {shlex.quote(str(status))}\nexit $status\n'
    )
    shell.chmod(0o700)
    os.environ["SHELL"] = str(shell)
    try:
        yield status
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Busy(LetheError):
    """Another command works on the files of a stage, and did not end in time."""


def once_free(work: Callable[[], Outcome], stopped: Callable[[], bool] = lambda: False) -> Outcome:
    """Return what ``work`` returns once it gets DVC's locks.

    Another command that works on the stage's files gets `BUSY_SECONDS` to end: it may be the stage itself on a worker that
    died, whose process is about to end too. Raises `Busy` after that, and as soon as ``stopped`` says so.
    """
    from dvc.lock import LockError

    until = time.monotonic() + BUSY_SECONDS
    while True:
        mend_locks(Path.cwd())
        try:
            return work()
        except LockError:
            if stopped() or time.monotonic() > until:
                command = other_command(Path.cwd(), 0) or "another DVC command"
                raise Busy(
                    f"{command} works in this folder, and the stage needs its files"
                ) from None
            time.sleep(0.5)


def reproduce(stage: str, pull: bool = False) -> dict[str, object]:
    """Bring one stage up to date; return its state, the exit status of its command and why it failed."""
    try:
        return once_free(lambda: _reproduced(stage, pull))
    except Busy as busy:
        return {"state": "failed", "status": 1, "tail": str(busy)}


def _reproduced(stage: str, pull: bool) -> dict[str, object]:
    from dvc.exceptions import DvcException
    from dvc.lock import LockError
    from dvc.stage.exceptions import StageCmdFailedError

    with status_of_command() as status:
        try:
            return _brought(stage, pull, status)
        except DvcException as error:
            cause = error.__cause__ or error
            if isinstance(cause, LockError):
                raise cause from None
            number = 1
            tail = " ".join(str(cause).split())
            if isinstance(cause, StageCmdFailedError):
                tail = ""
                if status.exists():
                    number = int(status.read_text())
            return {"state": "failed", "status": number, "tail": tail}


def _brought(stage: str, pull: bool, status: Path, again: bool = False) -> dict[str, object]:
    with opened() as repo:
        # Else DVC repeats after each stage how to track dvc.lock with git.
        repo.scm_context.quiet = True
        changed = repo.reproduce([stage], single_item=True, pull=pull)
        if not changed or status.exists():
            return {"state": "ran" if changed else "unchanged", "status": 0, "tail": ""}
        with repo.lock:
            outs = outputs_of(repo, [stage])
        bad = ", ".join(os.path.relpath(out.fs_path) for out in damaged(outs))
    if bad and again:
        tail = f"{bad}: damaged also the second time; the disk may be failing"
        return {"state": "failed", "status": 1, "tail": tail}
    if bad:
        print(
            f"DVC's cache or remote held damaged files, which are gone: the stage makes {bad} again",
            flush=True,
        )
        # Without the remote, which would send the same bytes.
        return _brought(stage, False, status, again=True)
    return {"state": "restored", "status": 0, "tail": ""}


def save(name: str | None) -> dict[str, object]:
    """Keep the workspace as an experiment of DVC; return its name, or why it is not kept."""
    try:
        with opened() as repo:
            revision = repo.experiments.save(name=name, force=True)
            return {"name": repo.experiments.get_exact_name([revision])[revision]}
    except Exception as error:  # of DVC or git
        return {"name": None, "reason": " ".join(str(error).split()) or type(error).__name__}


def outputs_of(repo: Repo, stages: Collection[str]) -> list[Output]:
    """DVC's outputs of these stages."""
    outs: list[Output] = []
    for stage in repo.index.stages:
        if getattr(stage, "name", "") in stages:
            outs += stage.outs
    return outs


def mend_locks(root: Path) -> None:
    """Mend DVC's record of running commands where a full disk or a kill left it half, or with a command that has ended.

    DVC would refuse every command for either. It removes ended commands itself, but takes one for running whose parent has
    not asked how it ended, or whose number another process has.
    """
    from dvc.lock import LockError, make_lock

    folder = root / ".dvc" / "tmp"
    record = folder / "rwlock"
    if not record.is_file():
        return
    # Another command that has the lock writes the record now, and mends it.
    with (
        contextlib.suppress(LockError),
        make_lock(str(folder / "rwlock.lock"), tmp_dir=str(folder)),
    ):
        _mend(record)


def _mend(record: Path) -> None:
    try:
        users = json.loads(record.read_text(encoding="utf-8"))
        working = _without_ended(users, record.stat().st_mtime)
    except (ValueError, TypeError, LookupError, AttributeError):
        record.unlink()
        return
    if working != users:
        write_text(record, json.dumps(working))


def _without_ended(users: dict[str, Any], written: float) -> dict[str, Any]:
    """DVC's record, which was last written at a time, without the commands that have ended."""
    writing = {
        path: user
        for path, user in users.get("write", {}).items()
        if not _has_ended(user["pid"], written)
    }
    reading = {}
    for path, readers in users.get("read", {}).items():
        left = [user for user in readers if not _has_ended(user["pid"], written)]
        if left:
            reading[path] = left
    return {**users, "write": writing, "read": reading}


def _has_ended(pid: int, written: float) -> bool:
    """Whether the process that a record names has ended: a later one may have its number, or nobody asked how it ended."""
    import psutil

    try:
        process = psutil.Process(pid)
        is_later = process.create_time() > written + CLOCKS_DIFFER
        return is_later or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def other_command(root: Path, patience: float = 3) -> str:
    """Return the DVC command of another process that works here and outlives ``patience`` seconds; empty if there is none."""
    until = time.monotonic() + patience
    while True:
        mend_locks(root)
        command = _working(root / ".dvc" / "tmp" / "rwlock")
        if not command or time.monotonic() > until:
            return command
        time.sleep(0.2)


def _working(record: Path) -> str:
    try:
        users = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    working = list(users.get("write", {}).values())
    for readers in users.get("read", {}).values():
        working += readers
    for user in working:
        command = _command(user["pid"])
        if command:
            return command
    return ""


def holder(root: Path) -> str:
    """Return the DVC command that holds the lock of the whole folder, with its number; empty if it has ended."""
    try:
        return _command(int((root / ".dvc" / "tmp" / "lock").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return ""


def _command(pid: int) -> str:
    """The command of a living process other than this, for a sentence; empty if there is none."""
    if pid == os.getpid():
        return ""
    place = Path("/proc", str(pid), "cmdline")
    try:
        text = place.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    words = [os.path.basename(word) or word for word in text.split("\0") if word]
    if not words:  # it ends, and has no memory any more
        return f"a command that ends (process {pid})"
    return f"`{' '.join(words)}` (process {pid})"


def damaged(outs: Iterable[Output]) -> Iterator[Output]:
    """Yield DVC's outputs whose content is not that of their hash, after their removal here and in the cache."""
    for out in outs:
        hashed = out.use_cache and out.hash_info and out.hash_info.name == MD5
        if not hashed or not os.path.exists(out.fs_path):
            continue
        wrong = list(_wrong(out))
        if not wrong:
            continue
        for name in wrong:
            cached = out.cache.oid_to_path(name)
            with contextlib.suppress(FileNotFoundError):
                good = _md5(cached) == name.removesuffix(".dir")
                if not good:  # a good object only has a damaged copy here
                    os.unlink(cached)
        if os.path.isdir(out.fs_path) and not os.path.islink(out.fs_path):
            shutil.rmtree(out.fs_path)
        else:
            os.unlink(out.fs_path)
        yield out


def _wrong(out: Output) -> Iterator[str]:
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


def done(job: dict[str, Any]) -> dict[str, object]:
    """Do a job, and return its answer."""
    if "save" in job:
        return save(job["save"])
    return reproduce(job["stage"], job["pull"])


def main() -> None:
    """Do the job of the first argument, and write the answer as JSON to the descriptor of the second."""
    die_with_parent()
    job = json.loads(sys.argv[1])
    descriptor = int(sys.argv[2])
    answer = done(job)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
