"""A sweep: the pipeline over a grid of params, one folder per point; shared stages run once.

Every point is a copy of the sources under .lethe/sweeps, with its own params.yaml and this repository's DVC cache. A stage
that two points share runs in the first and is restored in the second, unless both reach the stage at the same time. A
finished point takes seconds when the sweep runs again.
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows import settings, workspace
from flows.grid import Point, SweepPreset
from flows.overview import standard
from flows.workspace import RESULTS, no_source
from lethe import tracking
from lethe.errors import plural
from lethe.io.files import SCHEMA_VERSION, Json, write_json
from lethe.progress import FIRST_PAUSE
from lethe.results import table
from lethe.results.quantities import headline
from lethe.statistics.bound import Bound

SWEEPS = workspace.SCRATCH / "sweeps"
LARGE = 1 << 20  # bytes
ENDED = re.compile(r"\(\d+ of \d+\)$")  # how the line of a stage that ended ends
Changes = Sequence[tuple[str, object]]


def make_folder(root: Path, folder: Path, point: Point, common: Changes = ()) -> None:
    """Copy the current sources of ``root`` with the point's params; the outputs of an earlier sweep stay."""
    own_lock = folder / "dvc.lock"
    with workspace.only_run(folder):  # a point of a killed sweep takes seconds to end
        lock = own_lock.read_bytes() if own_lock.exists() else None
        shutil.copytree(
            root, folder, ignore=no_source(root), dirs_exist_ok=True, copy_function=copy
        )
        if lock is not None:  # the point's own lock is more recent than that of ``root``
            own_lock.write_bytes(lock)
        settings.change(folder / "params.yaml", [*common, *point.settings])
        workspace.keep_cache(folder, workspace.cache_of(root))


def copy(source: str, target: str) -> None:
    """Copy a file; a large file, such as a checkpoint of the user, becomes a hard link if the file system allows."""
    if os.path.getsize(source) > LARGE:
        with contextlib.suppress(OSError):
            Path(target).unlink(missing_ok=True)
            os.link(source, target)
            return
    shutil.copy2(source, target)


@task(cache_policy=NO_CACHE)
def run_point(folder: str, jobs: int) -> dict[str, Json]:
    command = [sys.executable, "-m", "lethe", "run", "--json", "--jobs", str(jobs)]
    environment = workspace.child_environment() | {
        "LETHE_TRACKING": "off",
        "LETHE_PARENT": str(os.getpid()),
    }
    pipe, heard, shown = subprocess.PIPE, [""], time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as result,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=result, stderr=pipe, text=True
        ) as point,
    ):
        for line in point.stderr or ():
            heard.append(line)
            if ENDED.search(line) and time.monotonic() - shown >= FIRST_PAUSE:
                standard().print(f"{Path(folder).name}: {line.strip()}")
                shown = time.monotonic()
        point.wait()
        result.seek(0)
        printed = result.read().splitlines()
    try:
        return json.loads(printed[-1])
    except (IndexError, json.JSONDecodeError):
        return {
            "error": " ".join("".join(heard).split())[-500:] or f"exit status {point.returncode}"
        }


@flow(name="lethe sweep")
def run_points(folders: list[str], jobs: int) -> list[dict[str, Json]]:
    futures = [
        run_point.with_options(name=Path(folder).name).submit(folder, jobs) for folder in folders
    ]
    names = {
        future.task_run_id: Path(folder).name
        for future, folder in zip(futures, folders, strict=True)
    }
    standard().print(
        f"{plural(len(folders), 'point')} to run or restore; a stage that points share runs once."
    )
    begun = time.monotonic()
    for done, future in enumerate(as_completed(futures), 1):
        outcome = future.result()
        left = (time.monotonic() - begun) / done * (len(futures) - done)
        progress = f"{done} of {len(futures)}"
        if left:
            progress += f", about {left:.0f} s to go"
        standard().print(f"{names[future.task_run_id]} {_end_of(outcome)} ({progress})")
    return [future.result() for future in futures]


def _end_of(outcome: dict[str, Json]) -> str:
    if outcome.get("error"):
        return "failed"
    if all(stage["why"] == "clean" for stage in outcome.get("stages", {}).values()):
        return "was up to date"
    return "is done"


def sweep(
    root: Path,
    points: Sequence[Point],
    name: str,
    at_once: int,
    jobs: int,
    scheduler: str | None,
    common: Changes = (),
) -> dict:
    folders = [root / SWEEPS / name / point.name for point in points]
    for point, folder in zip(points, folders, strict=True):
        # The words on all points share alpha.
        make_folder(root, folder, point, [*common, ("report.points", len(points))])
    flow_of_points = run_points.with_options(
        task_runner=runner(at_once, scheduler)
    )  # futures of its own
    outcomes = flow_of_points([str(folder) for folder in folders], jobs)
    rows: list[dict[str, Json]] = []
    failed = {}
    for point, folder, outcome in zip(points, folders, outcomes, strict=True):
        if outcome.get("error"):
            failed[point.name] = outcome["error"]
            continue
        sentence = tracking.log_new(folder, home=root)
        if sentence:
            standard().print(f"{point.name}: {sentence}")
        rows += _rows_of(point, folder, outcome)
    result = {
        "schema": SCHEMA_VERSION,
        "name": name,
        "common": dict(common),
        "points": {point.name: dict(point.settings) for point in points},
        "failed": failed,
        "rows": rows,
    }
    write_json(root / RESULTS / f"{name}.json", result)
    return result


def _rows_of(point: Point, folder: Path, outcome: dict[str, Json]) -> list[dict[str, Json]]:
    """A row for each model of a point: its settings, word and metrics, with the guarantee of each bound."""
    results = table.read(folder / "data", outcome["metrics"])
    rows = []
    for model, values in outcome["metrics"].items():
        bounds = results.model(model).bounds
        rows.append(
            {
                "point": point.name,
                **dict(point.settings),
                "model": model,
                "forgetting": outcome["verdicts"].get(model, {}).get("forgetting"),
                **values,
                "bounds": {key: bound.guarantee_dict() for key, bound in bounds.items()},
            }
        )
    return rows


def runner(at_once: int, scheduler: str | None) -> TaskRunner[Any]:
    if scheduler is None:
        return ThreadPoolTaskRunner(max_workers=at_once)
    from prefect_dask import DaskTaskRunner

    return DaskTaskRunner(address=scheduler)


def concluded(preset: SweepPreset | None, result: dict[str, Json], place: Path) -> list[str]:
    from lethe.report.sweep_figure import axes_figure, outcome, sweep_figure

    picture = place.with_suffix(".png")
    if preset is None:
        drawn_any = axes_figure(picture, _axes(result), _shown(result), result["rows"])
        return [f"Figure: {picture}"] if drawn_any else []
    outcomes = [outcome(claim, preset.figure.model, result["rows"]) for claim in preset.claims]
    drawn = sweep_figure(picture, preset.figure, result["rows"])
    result["figure"] = {"file": picture.name, "points": drawn, **preset.figure.model_dump()}
    result["claims"] = [dataclasses.asdict(tested) for tested in outcomes]
    write_json(place.with_suffix(".json"), result)
    return [*(tested.sentence for tested in outcomes), f"Figure: {picture}"]


def shown(result: dict[str, Json]) -> tuple[list[str], list[list[object]]]:
    """Return the columns, and one row per model and point, of the models that differ between points."""
    rows = result["rows"]
    metrics = _shown(result)
    columns = ["model", *_axes(result)]
    if any(row["forgetting"] for row in rows):
        columns.append("forgetting")
    columns += metrics
    rows_of_model: dict[str, list[dict[str, Json]]] = {}
    for row in rows:
        rows_of_model.setdefault(row["model"], []).append(row)
    cells = []
    for name in sorted(rows_of_model):
        found = rows_of_model[name]
        distinct = {tuple(row.get(metric) for metric in metrics) for row in found}
        if len(distinct) == 1 and len(result["points"]) > 1:
            continue  # no setting of the sweep changes this model
        for row in found:
            cells.append([_bound(row, key) or row.get(key) for key in columns])
    return columns, cells


def _axes(result: dict[str, Json]) -> list[str]:
    return list(dict.fromkeys(key for values in result["points"].values() for key in values))


def _shown(result: dict[str, Json]) -> list[str]:
    return list(dict.fromkeys(key for row in result["rows"] for key in headline(row)))


def _bound(row: dict[str, Json], key: str) -> Bound | None:
    """Return the value of a column as a `Bound` if it has a guarantee: a bound rounds itself."""
    guarantee, value = row.get("bounds", {}).get(key), row.get(key)
    if guarantee is None or value is None:
        return None
    return Bound.from_dict({"value": value, **guarantee})


def guarantee_notes(result: dict[str, Json]) -> list[str]:
    notes: set[str] = set()
    shown_metrics = _shown(result)
    for row in result["rows"]:
        for key in shown_metrics:
            bound = _bound(row, key)
            if bound is None:
                continue
            side = "an upper" if bound.side == "upper" else "a lower"
            notes.add(f"{key}: {side} bound, {bound.guarantee('the forget questions')}.")
    if not notes:
        return []
    return [*sorted(notes), "The others are estimates."]
