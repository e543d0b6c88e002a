"""Stages on the workers of a Ray cluster: `lethe run --scheduler ray://HOST:10001`, with the extra ``ray``.

What travels, and how inputs and outputs reach a worker, is as on a Dask cluster (`flows.workers`). Ray starts a stage again
on another worker where a process or a machine of the cluster dies.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from flows import worker_side, workspace
from flows.ray_clusters import join, not_installed
from flows.workers import PATIENCE, WAITS, Workers
from lethe.errors import LetheError

TRIES = 3  # of a stage whose workers die, after the first


class RayWorkers(Workers):
    """The workers of one Ray cluster."""

    def _connected(self, address: str) -> tuple[int, bool]:
        try:
            import ray
            from ray.util.queue import Queue
        except ImportError:
            raise not_installed(address, "Ray") from None
        join(address, log_to_driver=False, configure_logging=False, namespace="lethe")
        self._ray: Any = ray
        self._says: dict[str, Callable[[str, str], None]] = {}
        self._left = threading.Event()
        held = ray.cluster_resources()
        if not (threads := int(held.get("CPU", 0))):
            raise LetheError(
                f"--scheduler {address}: the cluster has no CPU. Start a node: `ray start --address ...`."
            )
        self._lines: Any = Queue(actor_options={"num_cpus": 0})
        threading.Thread(target=self._tell_lines, daemon=True).start()
        return threads, held.get("GPU", 0) > 0

    def _tell_lines(self) -> None:
        """Pass the lines of all stages on until the end of the run."""
        from ray.util.queue import Empty

        while not self._left.is_set():
            try:
                stage, line = self._lines.get(timeout=1)
            except Empty:
                continue
            except Exception:  # the cluster has gone, which the stages tell
                return
            if say := self._says.get(stage):
                say(stage, line)

    def _carried_out(
        self, asked: dict[str, Any], on_gpu: bool, say: Callable[[str, str], None]
    ) -> dict[str, Any] | None:
        stage, ray = asked["stage"], self._ray
        self._says[stage] = say
        task = ray.remote(worker_side.on_ray())
        task = task.options(name=stage, num_cpus=1, num_gpus=int(on_gpu), max_retries=TRIES)
        future = task.remote(self._parcel, str(self.root.absolute()), asked, self._lines)
        self._futures.append(future)
        if self.stopped:
            return None
        waiting = False
        while True:
            try:
                return ray.get(future, timeout=PATIENCE)
            except ray.exceptions.GetTimeoutError:
                if not waiting and not ray.cluster_resources().get("CPU"):
                    waiting = True
                    say(stage, WAITS)

    def _reason(self, error: Exception) -> str:
        died = (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.NodeDiedError)
        if isinstance(error, died):
            return f"several workers died while they ran the stage: {workspace.sentence(error)}"
        return f"the cluster could not run the stage: {workspace.sentence(error) or type(error).__name__}"

    def stop(self) -> None:
        self.stopped = True
        for future in list(self._futures):
            with contextlib.suppress(Exception):  # it has ended, or the cluster has gone
                self._ray.cancel(future, force=True)

    def close(self) -> None:
        self._left.set()
        with contextlib.suppress(Exception):  # the cluster has gone
            self._lines.shutdown(force=True)
        with contextlib.suppress(Exception):
            self._ray.shutdown()
