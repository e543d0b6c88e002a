"""What a worker of a Dask or Ray cluster does for one stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Told = dict[str, Any]


def on_dask() -> Callable[[bytes, str, Told, str], Told]:
    """Return the function for a Dask worker, which need not have this package.

    A nested function travels by value, whereas the worker would have to import a function of a module. So the nested
    functions also do their imports themselves.
    """
    carry_out = _carry_out()

    def bring_up(parcel: bytes, folder: str, told: Told, topic: str) -> Told:
        """Run one stage; each line it prints becomes an event. The stage ends when the task is cancelled."""
        from distributed import get_worker

        worker = get_worker()
        key = str(worker.get_current_task())

        def cancelled() -> bool:  # also by the end of the flow
            task = worker.state.tasks.get(key)
            return task is None or task.state in ("cancelled", "released", "forgotten")

        own = {"place": worker.local_directory, "name": worker.address}
        return carry_out(parcel, folder, told, own, lambda line: worker.log_event(topic, line), cancelled)

    return bring_up


def on_ray() -> Callable[[bytes, str, Told, Any], Told]:
    """Return the function for a worker of Ray, which need not have this package either."""
    carry_out = _carry_out()

    def bring_up(parcel: bytes, folder: str, told: Told, lines: Any) -> Told:
        """Run one stage; each line it prints goes to the queue. Ray ends this process when it cancels the task."""
        import contextlib
        import os
        import socket

        place = os.path.join(os.path.expanduser("~"), ".cache", "lethe", "worker")
        os.makedirs(place, mode=0o700, exist_ok=True)

        def say(line: str) -> None:
            with contextlib.suppress(Exception):  # a flow that has gone, whose tasks Ray ends
                lines.put((told["stage"], line))

        return carry_out(parcel, folder, told, {"place": place, "name": socket.gethostname()}, say, lambda: False)

    return bring_up


def _carry_out() -> Callable[[bytes, str, Told, dict[str, str], Callable[[str], None], Callable[[], bool]], Told]:
    """Return what both kinds of worker do."""

    def carry_out(
        parcel: bytes,
        folder: str,
        told: Told,
        own: dict[str, str],
        say: Callable[[str], None],
        cancelled: Callable[[], bool],
    ) -> Told:
        """Run one stage in a new folder below ``own["place"]``, or in ``folder`` where ``parcel`` is empty.

        ``told``: the stage, the stages that it reads, dvc.lock. Returns how the stage ended and its entry of dvc.lock.
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

        new = tempfile.mkdtemp(prefix="lethe-", dir=own["place"])
        result = os.path.join(new, "result.json")
        ended = threading.Event()
        try:
            place = os.path.join(new, "pipeline") if parcel else folder
            if parcel:
                with tarfile.open(fileobj=io.BytesIO(parcel), mode="r:gz") as archive:
                    if hasattr(tarfile, "data_filter"):  # Python 3.11.4 has it, Debian's 3.11.2 does not
                        archive.extraction_filter = tarfile.data_filter
                    archive.extractall(place)
            elif not os.path.isdir(os.path.join(folder, ".dvc")):
                reason = f"worker {own['name']} does not see {folder}, and DVC has no default remote to fetch from"
                return {"state": "failed", "status": 1, "tail": reason, "entry": None}
            cache = os.path.join(own["place"], "lethe-cache")
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
                    if cancelled():
                        process.terminate()

            threading.Thread(target=end_with_task, daemon=True).start()
            with process:
                assert process.stdin
                process.stdin.write(json.dumps(asked))
                process.stdin.close()
                last: list[str] = []
                for line in process.stdout or ():
                    last = [*last[-2:], line.rstrip()]
                    say(line.rstrip())
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
            shutil.rmtree(new, ignore_errors=True)

    return carry_out
