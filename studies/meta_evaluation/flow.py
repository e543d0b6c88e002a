"""A meta-evaluation on Dask: one task per batch of models, in a process of its own; a finished model takes seconds again.

The model that is unlearned and Retrain come first, because every other shard reads them. A task gets several models, so
that the start of a process is paid once for all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed

from flows import workspace
from flows.overview import standard
from flows.sweep import task_runner
from lethe.errors import LetheError, plural
from lethe.io.atomic import atomic_file

if TYPE_CHECKING:
    from studies.meta_evaluation.shards import Shards

FOLDER = workspace.SCRATCH / "meta"


def write_params(root: Path, name: str, document: Mapping[str, object]) -> Path:
    """Write the params of one meta-evaluation where every process of it reads them; return the path from ``root``."""
    from ruamel.yaml import YAML

    place = FOLDER / f"{name}.yaml"
    with atomic_file(root / place) as temporary, temporary.open("w", encoding="utf-8") as stream:
        yaml = YAML(typ="safe", pure=True)
        # the order of the kinds of models gives the models their names
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel declares None
        yaml.dump(dict(document), stream)
    return place


def batches(names: Sequence[str], size: int) -> Iterator[list[str]]:
    """The names in groups of at most ``size``, in order."""
    for start in range(0, len(names), size):
        yield list(names[start : start + size])


@task(cache_policy=NO_CACHE)
def work(root: str, place: str, names: list[str]) -> str:
    """Work some shards in a process of their own; return the error, or nothing."""
    command = [sys.executable, "-m", "studies.meta_evaluation.child", place, *names]
    environment = workspace.child_environment() | {"LETHE_PARENT": str(os.getpid())}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return " ".join(done.stderr.split())[-500:] or f"exit status {done.returncode}" if done.returncode else ""


@flow(name="meta-evaluation")
def run_batches(root: str, place: str, waves: list[list[list[str]]]) -> dict[str, str]:
    """Work all batches, wave by wave; return the errors by the models of the batch."""
    failed: dict[str, str] = {}
    total, finished, begun = sum(map(len, waves)), 0, time.monotonic()
    for wave in waves:
        futures = [work.with_options(name=names[0]).submit(root, place, names) for names in wave]
        called = {future.task_run_id: ", ".join(names) for future, names in zip(futures, wave, strict=True)}
        for future in as_completed(futures):
            finished += 1
            if error := future.result():
                failed[called[future.task_run_id]] = error
            left = (time.monotonic() - begun) / finished * (total - finished)
            how = "failed" if error else "done"
            standard().print(
                f"{called[future.task_run_id]}: {how} ({finished} of {total} batches, about {left:.0f} s to go)"
            )
        if failed:
            break
    return failed


def run(root: Path, place: Path, shards: Shards, at_once: int, batch: int, scheduler: str | None) -> None:
    """Work every shard, ``at_once`` processes at a time; raises `LetheError` where one failed.

    ``scheduler``: the address of a Dask scheduler whose workers see this folder; None: threads of this process.
    """
    waves = [list(batches(shards.first, 1)), list(batches(shards.rest, batch))]
    own = run_batches.with_options(task_runner=task_runner(at_once, scheduler))  # futures of its own
    failed = own(str(root), str(place), waves)
    if failed:
        told = "; ".join(f"{names}: {error}" for names, error in failed.items())
        raise LetheError(
            f"{plural(len(failed), 'batch', 'batches')} failed. {told}. The same command continues with what is left."
        )
