"""Stages on the workers of a Dask cluster, which see the folder of the pipeline under the path that it has here.

A worker runs a stage as this machine would: `flows.dvc_child` in the folder. A stage whose worker dies starts again on
another worker.
"""

import contextlib
import os
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING

from flows import worker_side, workspace
from flows.workspace import Reproduced
from lethe.errors import LetheError
from lethe.io.files import Json
from lethe.process import PARAMS

if TYPE_CHECKING:
    from distributed import Future

SECONDS = float(os.environ.get("LETHE_SCHEDULER_SECONDS", 30))  # for the scheduler's first answer
PATIENCE = 10  # seconds between two looks at the cluster
GPU = "GPU"  # the name of the resource: `dask worker ADDRESS --resources GPU=1`
# Stages that run a model; on a cluster whose workers declare GPUs each asks for a GPU.
ON_GPU = (
    "train unlearn attack sample likelihood exact extract judge epsilon_star twins utility".split()
)
WAITS = "waits: the cluster has no worker left"


class Workers:
    """Brings stages up to date on a cluster, as `workspace.Processes` does here."""

    def __init__(self, root: Path, address: str, pull: bool = False):
        """Connect to the scheduler at ``address``.

        ``pull``: DVC takes from its remote what was made elsewhere. Raises `LetheError` where no scheduler answers or no
        worker has joined.
        """
        self.root = root
        self.stopped = False
        self.threads, self._gpus = self._connected(address)
        self._pull = pull
        # The flow alone writes to MLflow.
        self._settings = {"PYTHONUNBUFFERED": "1", "LETHE_TRACKING": "off"}
        if (root / workspace.PARAMS_COPY).exists():
            self._settings[PARAMS] = str((root / workspace.PARAMS_COPY).absolute())
        self._futures: list[Future] = []

    def _connected(self, address: str) -> tuple[int, bool]:
        """Return the threads of all workers, and whether a worker declares GPUs."""
        import cloudpickle
        from distributed import Client

        cloudpickle.register_pickle_by_value(worker_side)
        try:
            self._client = Client(address, timeout=SECONDS, set_as_default=False, name="lethe")
        except (OSError, ValueError) as error:
            reason = workspace.sentence(error)
            raise LetheError(
                f"--scheduler {address}: no Dask scheduler answers there ({reason})."
            ) from error
        workers = self._workers()
        if not workers:
            raise LetheError(
                f"--scheduler {address}: no worker has joined. Start one: `dask worker {address}`."
            )
        gpus = any(worker.get("resources", {}).get(GPU) for worker in workers)
        threads = sum(worker["nthreads"] for worker in workers)
        return threads, gpus

    def _workers(self) -> list[dict[str, Json]]:
        return list(self._client.scheduler_info(n_workers=-1)["workers"].values())

    def close(self) -> None:
        self._client.close()

    def stop(self) -> None:
        """Cancel every stage that runs on a worker; no stage starts afterwards."""
        self.stopped = True
        self._client.cancel(list(self._futures), force=True)

    def reproduce(self, stage: str, say: Callable[[str, str], None]) -> Reproduced:
        """Have a worker bring one stage up to date; ``say(stage, line)`` gets each line that the stage prints."""
        from distributed import KilledWorker

        try:
            return self._reproduce(stage, say)
        except Exception as error:
            if self.stopped:
                return Reproduced("stopped")
            # Another error: a worker whose disk is full, or a client that lost its scheduler.
            reason = f"the cluster could not run the stage: {workspace.sentence(error)}"
            if isinstance(error, CancelledError):
                reason = "the connection to the Dask scheduler broke off; `lethe run` continues with what is left"
            elif isinstance(error, KilledWorker):
                reason = f"several workers died while they ran the stage: {error}"
            return Reproduced("failed", 1, reason)

    def _reproduce(self, stage: str, say: Callable[[str, str], None]) -> Reproduced:
        topic = f"lethe-{uuid.uuid4().hex}"
        self._client.subscribe_topic(topic, lambda event: say(stage, event[1]))
        needs_gpu = self._gpus and stage.partition("@")[0] in ON_GPU
        future = self._client.submit(
            worker_side.bring_up,
            str(self.root.absolute()),
            {"stage": stage, "pull": self._pull},
            self._settings,
            topic,
            key=f"{stage}-{uuid.uuid4().hex[:8]}",
            resources={GPU: 1} if needs_gpu else None,
            pure=False,
        )
        self._futures.append(future)
        if self.stopped:
            return Reproduced("stopped")
        try:
            answer = self._result(future, stage, say)
        finally:
            with contextlib.suppress(Exception):  # a client without its scheduler cannot
                self._client.unsubscribe_topic(topic)
        return Reproduced(answer["state"], answer["status"], answer["tail"])

    def _result(
        self, future: "Future", stage: str, say: Callable[[str, str], None]
    ) -> dict[str, Json]:
        """Wait for the answer of a worker; say once if no worker is left to give it."""
        waiting = False
        while True:
            try:
                return future.result(timeout=PATIENCE)
            except TimeoutError:
                if not waiting and not self._workers():
                    waiting = True
                    say(stage, WAITS)
