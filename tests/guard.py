"""The checkout is out of bounds for tests: it may hold a run of the user's, or lie on a read-only disk.

Python announces each file that it opens to an audit hook. The hook fails the test that opens an artifact of the checkout or
writes anywhere in it, or that works in it or starts a process in it, where every relative path would lead to artifacts.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
ARTIFACTS = (
    "data",
    ".lethe",
    "mlflow.db",
    "mlruns",
    "dvc.lock",
    "dvc_plots",
    ".dvc/cache",
    ".dvc/tmp",
)
COMMITTED = {
    ROOT / name
    for name in (
        "data/source/README.md",
        "data/labels/calibration.csv",
        "data/labels/answers.jsonl",
    )
} | {ROOT / "tests/lethe/report/golden_page.txt"}  # which LETHE_WRITE_GOLDEN writes
WRITABLE = (".venv", "__pycache__")
WRITES = {
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "shutil.rmtree",
}
READS = {"os.listdir", "os.scandir", "sqlite3.connect"}
WATCHED = {"open", "os.chdir", "subprocess.Popen", *WRITES, *READS}
_in_tests = False


def broken(event: str, arguments: tuple[Any, ...]) -> str | None:
    """How an event that Python announces touches the checkout, or None."""
    if event == "subprocess.Popen":
        return "starts a process in" if _path(arguments[2] or os.getcwd()) == ROOT else None
    if event == "os.chdir":
        return "works in" if _path(arguments[0]) == ROOT else None
    if event == "open":
        writes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    elif event in WRITES or event in READS:
        writes = event in WRITES
    else:
        return None
    path = _path(arguments[event in ("os.link", "os.symlink")])  # of a link the second is written
    if path is None or not path.is_relative_to(ROOT) or path in COMMITTED:
        return None
    inside = path.relative_to(ROOT)
    if any(inside.is_relative_to(name) for name in ARTIFACTS):
        return f"touches {inside} of"
    if writes and not set(WRITABLE) & set(inside.parts):
        return f"writes {inside} into"
    return None


def _path(value: object) -> Path | None:
    if not isinstance(value, str | bytes | os.PathLike):
        return None  # an open file's number
    return Path(os.path.abspath(os.fsdecode(value)))


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in WATCHED:  # Python announces each `id`, ten thousands a second
        return
    if _in_tests and (how := broken(event, arguments)):
        pytest.fail(
            f"a test {how} the checkout {ROOT}; let it work in tmp_path, or in the fixture `project`"
        )


@contextlib.contextmanager
def guarded(empty: Path) -> Iterator[None]:
    """Work in ``empty`` while the hook watches."""
    global _in_tests
    with contextlib.chdir(empty):
        sys.addaudithook(_hook)  # nothing can take it away again
        _in_tests = True
        try:
            yield
        finally:
            _in_tests = False
