"""What a Dask worker does for one stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def task() -> Callable[[bytes, str, dict[str, Any], str], dict[str, Any]]:
    """Return the function for a worker, which need not have this package.

    A nested function travels by value, whereas the worker would have to import a function of a module. So the nested
    function also does its imports itself.
    """

    def bring_up(parcel: bytes, folder: str, told: dict[str, Any], topic: str) -> dict[str, Any]:
        """Run one stage in a new folder, or in ``folder`` where ``parcel`` is empty; each line it prints becomes an event.

        ``told``: the stage, the stages that it reads, dvc.lock. Returns how the stage ended and its entry of dvc.lock. The
        stage ends when the task is cancelled, also by the end of the flow.
        """
        import io
        import json
        import os
        import shutil
        import subprocess
        import sys
        import tarfile
        import tempfile
        import threading

        from distributed import get_worker

        worker = get_worker()
        key = str(worker.get_current_task())
        own = tempfile.mkdtemp(prefix="lethe-", dir=worker.local_directory)
        result = os.path.join(own, "result.json")
        ended = threading.Event()
        try:
            place = os.path.join(own, "pipeline") if parcel else folder
            if parcel:
                with tarfile.open(fileobj=io.BytesIO(parcel), mode="r:gz") as archive:
                    if hasattr(tarfile, "data_filter"):  # Python 3.11.4 has it, Debian's 3.11.2 does not
                        archive.extraction_filter = tarfile.data_filter
                    archive.extractall(place)
            elif not os.path.isdir(os.path.join(folder, ".dvc")):
                reason = (
                    f"worker {worker.address} does not see {folder}, and DVC has no default remote to fetch from"
                )
                return {"state": "failed", "status": 1, "tail": reason, "entry": None}
            cache = os.path.join(worker.local_directory, "lethe-cache")
            asked = told | {"shared": not parcel, "cache": cache, "result": result}
            path = os.pathsep.join([place, os.environ["PYTHONPATH"]]) if "PYTHONPATH" in os.environ else place
            process = subprocess.Popen(
                [sys.executable, "-m", "flows.workers"],
                cwd=place,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=os.environ | {"LETHE_TRACKING": "off", "PYTHONPATH": path},
            )

            def end_with_task() -> None:
                while not ended.wait(1):
                    task = worker.state.tasks.get(key)
                    if task is None or task.state in ("cancelled", "released", "forgotten"):
                        process.terminate()

            threading.Thread(target=end_with_task, daemon=True).start()
            with process:
                assert process.stdin
                process.stdin.write(json.dumps(asked))
                process.stdin.close()
                last: list[str] = []
                for line in process.stdout or ():
                    last = [*last[-2:], line.rstrip()]
                    worker.log_event(topic, line.rstrip())
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
            ended.set()
            shutil.rmtree(own, ignore_errors=True)

    return bring_up
