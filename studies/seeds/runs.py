"""The pipeline once per seed, each seed in a separate folder.

Seed 0 is params.yaml as it is. Seed i adds 10 i to each seed in params.yaml, so that data, models, unlearning and answers
change together. Each seed runs in a copy of the sources under .lethe/seeds, on this repository's DVC cache: a repeated
run continues an interrupted one, and a finished seed costs seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows import workspace
from flows.grid import Point
from flows.overview import standard
from flows.sweep import Changes, make_folder
from lethe import config, tracking
from lethe.errors import MissingArtifact
from lethe.io.json_files import read_artifact

if TYPE_CHECKING:
    from studies.seeds.summary import SeedSummary

FOLDER = workspace.SCRATCH / "seeds"
STEP = 10  # from one seed to the next: the seeds of params.yaml differ by 1, so no two runs share one


def points(root: Path, count: int) -> list[Point]:
    """The settings of the seeds 0 to ``count`` - 1; the committed params.yaml fixes them all."""
    settings = config.load(root / config.FILE)
    seeds = {
        "data.seed": settings.data.seed,
        "train.recipe.seed": settings.train.recipe.seed,
        "unlearn.recipe.seed": settings.unlearn.recipe.seed,
        "sample.seed": settings.sample.seed,
    }
    return [
        Point(tuple((key, seed + STEP * index) for key, seed in seeds.items()), label=f"seed-{index}")
        for index in range(count)
    ]


def run_seeds(root: Path, chosen: Sequence[Point], jobs: int | None, common: Changes = ()) -> dict[str, str]:
    """Run one seed after another; return what went wrong, by the name of the seed.

    ``common`` are settings of all seeds, which change before a seed's own.
    Call the function within `flows.server.temporary_server`. The progress of each stage goes to standard error.
    """
    failed = {}
    for done, point in enumerate(chosen, 1):
        folder = root / FOLDER / point.name
        told = ", ".join(f"{key} {value}" for key, value in point.settings)
        standard().print(f"{point.name} ({done} of {len(chosen)}): {told}, in {folder}")
        make_folder(root, folder, point, common)
        command = [sys.executable, "-m", "lethe", "run", "--json", *(["--jobs", str(jobs)] if jobs else [])]
        environment = workspace.child_environment() | {"LETHE_TRACKING": "off", "LETHE_PARENT": str(os.getpid())}
        ended = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
        if ended.returncode:
            failed[point.name] = f"exit status {ended.returncode}"
        elif sentence := tracking.log_new(folder, home=root):
            standard().print(f"{point.name}: {sentence}")
    return failed


def read_seeds(root: Path, chosen: Sequence[Point]) -> SeedSummary:
    """Summarise the seeds that have finished, in order; raise `MissingArtifact` where none has."""
    from lethe.evaluation.run import load
    from studies.seeds.summary import observe, summarise

    found = []
    for point in chosen:
        folder = root / FOLDER / point.name
        record = folder / workspace.SCRATCH / "last_run.json"
        if record.is_file() and read_artifact(record)["complete"]:
            found.append(observe(point.name, load(config.load(folder / config.FILE), folder / "data", {})))
    if not found:
        raise MissingArtifact(root / FOLDER, "lethe study seeds")
    return summarise(found)
