"""Stages on the workers of a Dask cluster.

A worker needs this Python environment and nothing of this folder. It unpacks the sources into a folder of its own, fetches
what the stage reads from the DVC remote, runs the stage through DVC, and pushes the outputs to the remote. The flow takes
the stage's entry of dvc.lock and fetches the outputs. Without a remote, every worker must see this folder, and the stages
run in it. A stage whose worker dies starts again on another worker.
"""

import contextlib
import io
import json
import os
import sys
import tarfile
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from flows import remote, worker_side, workspace
from flows.dvc_child import reproduce, silence
from flows.workspace import Reproduced, no_source
from lethe.errors import BadFile, LetheError
from lethe.io.files import Json
from lethe.io.yaml import read_yaml
from lethe.process import die_with_parent, no_telemetry

if TYPE_CHECKING:
    from distributed import Future

SECONDS = float(os.environ.get("LETHE_SCHEDULER_SECONDS", 30))  # for the scheduler's first answer
PATIENCE = 10  # seconds between two looks at the cluster
GPU = "GPU"  # the name of the resource: `dask worker ADDRESS --resources GPU=1`
# Stages that run a model; on a cluster whose workers declare GPUs each asks for one.
ON_GPU = "train unlearn attack sample likelihood exact extract judge epsilon_star".split()
WAITS = "waits: the cluster has no worker left"
LARGEST = 64 << 20  # bytes of one source file; a larger one belongs to DVC


class Workers:
    def __init__(
        self, root: Path, address: str, upstream: Mapping[str, Sequence[str]], clean: Sequence[str]
    ):
        """Connect; ``upstream``: the stages that each stage reads; ``clean``: the stages whose outputs lie here."""
        self.root, self.upstream, self.stopped = root, upstream, False
        self.threads, self._gpus = self._connected(address)
        self.shared = not remote.has(root)
        self._parcel = b"" if self.shared else packed(root)
        if not self.shared:
            remote.require(root)
            if clean:
                remote.push(root, clean)
        self._lock = threading.Lock()  # one thread at a time changes dvc.lock and calls DVC here
        self._futures: list[Future] = []

    def _connected(self, address: str) -> tuple[int, bool]:
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
        return sum(worker["nthreads"] for worker in workers), gpus

    def _workers(self) -> list[dict[str, Json]]:
        return list(self._client.scheduler_info(n_workers=-1)["workers"].values())

    def close(self) -> None:
        self._client.close()

    def stop(self) -> None:
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
            if isinstance(error, LetheError):  # its outputs did not arrive
                return Reproduced("failed", error.exit_status, str(error))
            # Another error: a worker whose disk is full, or a client that lost its scheduler.
            reason = f"the cluster could not run the stage: {workspace.sentence(error)}"
            if isinstance(error, CancelledError):
                reason = "the connection to the Dask scheduler broke off; `lethe run` continues with what is left"
            elif isinstance(error, KilledWorker):
                reason = f"several workers died while they ran the stage: {error}"
            return Reproduced("failed", 1, reason)

    def _reproduce(self, stage: str, say: Callable[[str, str], None]) -> Reproduced:
        with self._lock:
            lock = self.root / "dvc.lock"
            text = lock.read_text(encoding="utf-8") if lock.exists() else ""
        topic = f"lethe-{uuid.uuid4().hex}"
        self._client.subscribe_topic(topic, lambda event: say(stage, event[1]))
        future = self._client.submit(
            worker_side.bring_up,
            self._parcel,
            str(self.root.absolute()),
            {"stage": stage, "upstream": list(self.upstream[stage]), "lock": text},
            topic,
            key=f"{stage}-{uuid.uuid4().hex[:8]}",
            resources={GPU: 1} if self._gpus and stage.partition("@")[0] in ON_GPU else None,
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
        if answer["entry"]:
            with self._lock:
                self._take(stage, answer["entry"])
        return Reproduced(answer["state"], answer["status"], answer["tail"])

    def _result(
        self, future: "Future", stage: str, say: Callable[[str, str], None]
    ) -> dict[str, Json]:
        waiting = False
        while True:
            try:
                return future.result(timeout=PATIENCE)
            except TimeoutError:
                if not waiting and not self._workers():
                    waiting = True
                    say(stage, WAITS)

    def _take(self, stage: str, entry: Mapping[str, Json]) -> None:
        lock = self.root / "dvc.lock"
        content: dict[str, Json] = {"schema": "2.0", "stages": {}}
        if lock.exists():
            content = read_yaml(lock)
        content["stages"][stage] = dict(entry)
        # DVC reads YAML 1.2, in which a text such as 1e-05 needs quotes that a writer of YAML 1.1 leaves out.
        writer, text = YAML(typ="safe"), io.StringIO()
        writer.default_flow_style = False
        writer.dump(content, text)
        workspace.write_text(lock, text.getvalue())
        remote.fetch(self.root, [stage])


def packed(root: Path) -> bytes:
    leave = no_source(root)
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz", dereference=True, compresslevel=6) as archive:
        for place, folders, files in os.walk(root, followlinks=True):
            left = leave(place, folders + files)
            folders[:] = sorted(set(folders) - left)
            for name in sorted(set(files) - left):
                path = Path(place, name)
                if path.stat().st_size > LARGEST:
                    problem = "is too large to be sent with every stage"
                    raise BadFile(path, problem, "Track it: `dvc add`, then `dvc push`.")
                source = root / workspace.PARAMS_COPY if path == root / "params.yaml" else path
                archive.add(source, path.relative_to(root).as_posix())
    return whole.getvalue()


def stage_here(job: Mapping[str, Json]) -> dict[str, Json]:
    """Run one stage in the folder of this process: on a worker, in the folder that its sources were unpacked into."""
    root, stage = Path.cwd(), str(job["stage"])
    own = not job["shared"]
    if own:
        workspace.prepare(root, page=False)
        workspace.keep_cache(root, Path(job["cache"]))
        if job["lock"]:
            workspace.write_text(root / "dvc.lock", job["lock"])
        if job["upstream"]:
            remote.fetch(root, job["upstream"])
    os.environ.update(workspace.child_environment())
    result = reproduce(stage)
    result["entry"] = None
    if result["state"] in ("ran", "unchanged", "restored") and own:
        remote.push(root, [stage], run_cache=False)
        written: dict[str, Json] = read_yaml(root / "dvc.lock")
        result["entry"] = written["stages"][stage]
    return result


def main() -> None:
    die_with_parent()
    no_telemetry()
    silence()
    job = json.load(sys.stdin)
    try:
        result = stage_here(job)
    except LetheError as error:
        result = {"state": "failed", "status": error.exit_status, "tail": str(error), "entry": None}
    Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
