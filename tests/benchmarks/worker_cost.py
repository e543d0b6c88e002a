"""What a worker of a Dask cluster adds to a stage, part by part: `python -m tests.benchmarks worker-cost`.

The stage is one of the miniature, which takes no time of its own: every second is a cost. A worker shares no folder with the
run: it unpacks the sources, fetches the inputs from the remote and pushes the outputs, which the run then fetches.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows import remote, worker_side, workspace
from flows.dvc_child import reproduce, silence
from flows.workers import packed
from tests.flows.miniature import Repository, make

STAGE, UPSTREAM = "metrics@npo", ["unlearn@npo"]
seconds: dict[str, float] = {}


def timed(part: str, work: Callable[[], Any]) -> Any:
    began = time.monotonic()
    result = work()
    seconds[part] = time.monotonic() - began
    return result


def pipeline(folder: Path) -> Repository:
    repository = make(folder / "mini", {"PREFECT_HOME": str(folder / "prefect")}, methods=["npo"])
    with open(repository.folder / ".dvc/config", "a") as config:
        config.write(f"    remote = store\n['remote \"store\"']\n    url = {folder / 'store'}\n")
    done = repository.lethe("run", "--push", LETHE_TRACKING="off")
    assert done.returncode == 0, done.stderr
    return repository


def on_a_worker(root: Path, own: Path) -> None:
    """What the run and a worker do for the stage, each part timed."""
    lock = (root / "dvc.lock").read_text()
    parcel = timed("pack the sources (once a run)", lambda: packed(root))
    timed("unpack the sources", lambda: worker_side.unpack(parcel, str(own)))
    timed("prepare the folder for DVC", lambda: workspace.prepare(own, page=False))
    (own / "dvc.lock").write_text(lock)
    with contextlib.chdir(own):
        timed("fetch the inputs", lambda: remote.fetch(own, UPSTREAM))
        timed("the stage itself, through DVC", lambda: reproduce(STAGE))
        timed("push the outputs", lambda: remote.push(own, [STAGE], run_cache=False))
    with contextlib.chdir(root):
        timed("fetch the outputs here", lambda: remote.fetch(root, [STAGE]))


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        repository = pipeline(Path(place))
        os.environ |= repository.environment
        silence()
        child = [
            sys.executable,
            "-c",
            "import flows.workers, dvc.repo, dvc.repo.push, dvc.repo.fetch",
        ]
        timed("start a process with DVC", lambda: subprocess.run(child, check=True))
        on_a_worker(repository.folder, Path(place, "worker"))
    for part, took in seconds.items():
        print(f"{took:7.2f} s  {part}")
    here = seconds["start a process with DVC"] + seconds["the stage itself, through DVC"]
    print(f"{here:7.2f} s  the stage here\n{sum(seconds.values()):7.2f} s  the stage on a worker")


if __name__ == "__main__":
    main()
