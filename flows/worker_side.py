"""What a worker of a Dask cluster does for one stage; it gets this module by value and need not have the package."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Worker


def bring_up(parcel: bytes, folder: str, job: dict[str, object], topic: str) -> dict[str, object]:
    """Run one stage in a new folder, or in ``folder`` where ``parcel`` is empty; each line it prints becomes an event."""
    from distributed import get_worker

    worker = get_worker()
    if not parcel and not os.path.isdir(os.path.join(folder, ".dvc")):
        reason = f"worker {worker.address} does not see {folder}, and DVC has no default remote to fetch from"
        return {"state": "failed", "status": 1, "tail": reason, "entry": None}
    own = tempfile.mkdtemp(prefix="lethe-", dir=worker.local_directory)
    try:
        if parcel:
            folder = os.path.join(own, "pipeline")
            unpack(parcel, folder)
        result = os.path.join(own, "result.json")
        cache = os.path.join(worker.local_directory, "lethe-cache")
        job = job | {"shared": not parcel, "cache": cache, "result": result}
        process = start(folder, job)
        last = follow(process, worker, topic)
        if not os.path.exists(result):
            return {
                "state": "failed",
                "status": process.returncode or 1,
                "tail": "\n".join(last),
                "entry": None,
            }
        with open(result, encoding="utf-8") as file:
            return json.load(file)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def unpack(parcel: bytes, folder: str) -> None:
    with tarfile.open(fileobj=io.BytesIO(parcel), mode="r:gz") as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 has it, Debian's 3.11.2 does not
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)


def start(folder: str, job: dict[str, object]) -> subprocess.Popen:
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.workers"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"LETHE_TRACKING": "off", "PYTHONPATH": path},
    )
    assert process.stdin
    process.stdin.write(json.dumps(job))
    process.stdin.close()
    return process


def follow(process: subprocess.Popen, worker: "Worker", topic: str) -> list[str]:
    """Pass the lines of the process on until it ends, and return the last; end it with its task."""
    key, ended = str(worker.get_current_task()), threading.Event()

    def end_with_task() -> None:
        while not ended.wait(1):
            task = worker.state.tasks.get(key)
            if task is None or task.state in ("cancelled", "released", "forgotten"):
                process.terminate()

    threading.Thread(target=end_with_task, daemon=True).start()
    last: list[str] = []
    try:
        with process:
            for line in process.stdout or ():
                last = [*last[-2:], line.rstrip()]
                worker.log_event(topic, line.rstrip())
    finally:
        ended.set()
    return last
