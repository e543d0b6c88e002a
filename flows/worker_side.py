"""What a worker of a Dask cluster does for one stage; the worker gets this module by value and need not import flows."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Worker


def bring_up(
    folder: str, job: dict[str, object], settings: dict[str, str], topic: str
) -> dict[str, object]:
    """Run one stage in ``folder`` and return its state, exit status and last lines.

    ``job`` is that of `flows.dvc_child`, and ``settings`` change the environment. Each line that the stage prints becomes an
    event of ``topic``.
    """
    from distributed import get_worker

    worker = get_worker()
    if not os.path.isdir(os.path.join(folder, ".dvc")):
        reason = f"worker {worker.address} does not see {folder}; every worker must see it under this path"
        return {"state": "failed", "status": 1, "tail": reason}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answer:
        process = start(folder, job, settings, answer)
        tail = "\n".join(follow(process, worker, topic))
        answer.seek(0)
        text = answer.read()
    if not text:  # the process died before its answer
        return {"state": "failed", "status": process.returncode or 1, "tail": tail}
    found = json.loads(text)
    found["tail"] = found["tail"] or tail
    return found


def start(
    folder: str, job: Mapping[str, object], settings: dict[str, str], answer: IO[str]
) -> subprocess.Popen:
    """Start DVC's work on the stage; its answer goes to the open file ``answer``."""
    interpreters = os.path.dirname(sys.executable)  # stages run `python`
    here = {
        "PATH": os.pathsep.join([interpreters, os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")])),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "flows.dvc_child", json.dumps(job), str(answer.fileno())],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={"OMP_NUM_THREADS": "1"} | os.environ | settings | here,
        pass_fds=[answer.fileno()],
    )


def follow(process: subprocess.Popen, worker: "Worker", topic: str) -> list[str]:
    """Pass the lines of the process on until it ends, and return the last three; end it with its task."""
    key = str(worker.get_current_task())
    ended = threading.Event()

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
