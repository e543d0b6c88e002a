import os
import time
from pathlib import Path

import pytest

from lethe.audits import in_processes


def note(folder: Path, name: str) -> None:
    (folder / name).write_text(str(os.getpid()))
    time.sleep(0.2)  # long enough for the other process to take the next


def fail(folder: Path, name: str) -> None:
    raise RuntimeError(f"{name} went wrong")


def test_every_call_is_made_in_other_processes(tmp_path):
    in_processes(note, [(tmp_path, str(i)) for i in range(5)], "notes")
    pids = {int(path.read_text()) for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 5
    if len(os.sched_getaffinity(0)) > 1:
        assert os.getpid() not in pids
        assert len(pids) > 1


def test_an_error_comes_through(tmp_path):
    with pytest.raises(RuntimeError, match="went wrong"):
        in_processes(fail, [(tmp_path, str(i)) for i in range(3)], "notes")
