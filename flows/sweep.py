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
from flows.grid import SweepPoint, SweepPreset
from flows.overview import standard
from flows.workspace import RESULTS, no_source
from lethe import tracking
from lethe.comparison.over_seeds import LEAKAGE, UTILITY, KeptAndLeaked, Matched
from lethe.config import load
from lethe.errors import plural
from lethe.io.files import SCHEMA_VERSION, Json, write_json
from lethe.measure.trajectories import KEPT
from lethe.progress import FIRST_PAUSE
from lethe.results import table
from lethe.results.quantities import headline
from lethe.statistics.bound import Bound
from lethe.text import number

SWEEPS = workspace.SCRATCH / "sweeps"
LARGE = 1 << 20  # bytes
ENDED = re.compile(r"\(\d+ of \d+\)$")  # how the line of a stage that ended ends
Changes = Sequence[tuple[str, object]]
MATCHED = (
    "At matched utility: of each model the point with the least mean leakage among those at which its mean score keeps at "
    f"least {KEPT:.0%} of Base's. The answers that chose a point also measure it, and more points find a lower leakage, so "
    "that the line is an optimistic estimate and no guarantee. Sweep equally many points of each model."
)


def make_folder(root: Path, folder: Path, point: SweepPoint, common: Changes = ()) -> None:
    """Copy the current sources of ``root`` with the point's params; the outputs of an earlier sweep stay.

    ``common`` are changes that all points share.
    """
    own_lock = folder / "dvc.lock"
    with workspace.only_run(folder):  # a point of a killed sweep takes seconds to end
        lock = b""
        if own_lock.exists():  # it is more recent than that of ``root``
            lock = own_lock.read_bytes()
        left_out = no_source(root)
        shutil.copytree(root, folder, ignore=left_out, dirs_exist_ok=True, copy_function=copy)
        if lock:
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
    """Run the pipeline in the folder of a point; return its record, or under ``error`` the end of what it said.

    The point is a process of its own, whose lines are shown where a stage ended, at most one every `FIRST_PAUSE` seconds.
    """
    command = [sys.executable, "-m", "lethe", "run", "--json", "--jobs", str(jobs)]
    environment = workspace.child_environment()
    environment["LETHE_TRACKING"] = "off"  # the sweep logs its points one after the other
    environment["LETHE_PARENT"] = str(os.getpid())

    heard: list[str] = []
    shown_at = time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as result,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=result,
            stderr=subprocess.PIPE,
            text=True,
        ) as point,
    ):
        for line in point.stderr or ():
            heard.append(line)
            if ENDED.search(line) and time.monotonic() - shown_at >= FIRST_PAUSE:
                standard().print(f"{Path(folder).name}: {line.strip()}")
                shown_at = time.monotonic()
        point.wait()
        result.seek(0)
        printed = result.read().splitlines()

    try:
        return json.loads(printed[-1])
    except (IndexError, json.JSONDecodeError):
        said = " ".join("".join(heard).split())
        return {"error": said[-500:] or f"exit status {point.returncode}"}


@flow(name="lethe sweep")
def run_points(folders: list[str], jobs: int) -> list[dict[str, Json]]:
    """Run all points as tasks of Prefect; return their records in the order of ``folders``."""
    futures = []
    name_of_task: dict[object, str] = {}
    for folder in folders:
        name = Path(folder).name
        future = run_point.with_options(name=name).submit(folder, jobs)
        futures.append(future)
        name_of_task[future.task_run_id] = name

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
        standard().print(f"{name_of_task[future.task_run_id]} {_end_of(outcome)} ({progress})")
    return [future.result() for future in futures]


def _under_test(folder: Path) -> int:
    """The number of models of a point that get a word; 1 where all are references, as alpha is never divided by 0."""
    return max(1, len(load(folder / "params.yaml").subjects))


def _end_of(outcome: dict[str, Json]) -> str:
    """How a point ended, in words."""
    if outcome.get("error"):
        return "failed"
    if all(stage["why"] == "clean" for stage in outcome.get("stages", {}).values()):
        return "was up to date"
    return "is done"


def sweep(
    root: Path,
    points: Sequence[SweepPoint],
    name: str,
    at_once: int,
    jobs: int,
    scheduler: str | None,
    common: Changes = (),
) -> dict:
    """Run every point; write and return the document of data/sweeps/NAME.json.

    A point that fails is named under ``failed`` and has no rows.

    Parameters
    ----------
    root
        The repository.
    points
        The points, each with its changes of params.yaml.
    name
        The name of the sweep.
    at_once, jobs
        How many points run together, and how many stages of each.
    scheduler
        The address of a Dask scheduler whose workers run the points; None: threads here.
    common
        Changes that all points share.
    """
    folders = [root / SWEEPS / name / point.name for point in points]
    for point, folder in zip(points, folders, strict=True):
        make_folder(root, folder, point, common)
    models = sum(map(_under_test, folders))
    for folder in folders:  # the words on all points share alpha
        settings.change(folder / "params.yaml", [("report.models", models)])

    # Each flow has a runner of its own: a runner keeps its futures.
    flow_of_points = run_points.with_options(task_runner=runner(at_once, scheduler))
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
    base = load(folders[0] / "params.yaml").report.base
    matched = at_matched_utility(result, base)
    result["matched_utility"] = [dataclasses.asdict(of_model) for of_model in matched]
    write_json(root / RESULTS / f"{name}.json", result)
    return result


def _rows_of(point: SweepPoint, folder: Path, outcome: dict[str, Json]) -> list[dict[str, Json]]:
    """A row for each model of a point: its settings, word and metrics, with the guarantee of each bound."""
    results = table.read(folder / "data", outcome["metrics"])
    rows = []
    for model, values in outcome["metrics"].items():
        bounds = results.model(model).bounds
        row = {
            "point": point.name,
            **dict(point.settings),
            "model": model,
            "forgetting": outcome["verdicts"].get(model, {}).get("forgetting"),
            **values,
            "bounds": {key: bound.guarantee_dict() for key, bound in bounds.items()},
        }
        rows.append(row)
    return rows


def runner(at_once: int, scheduler: str | None) -> TaskRunner[Any]:
    """Return what starts the points: threads here, or the workers of the Dask ``scheduler``."""
    if scheduler is None:
        return ThreadPoolTaskRunner(max_workers=at_once)
    from prefect_dask import DaskTaskRunner

    return DaskTaskRunner(address=scheduler)


def concluded(preset: SweepPreset | None, result: dict[str, Json], place: Path) -> list[str]:
    """Draw the figure of a sweep beside ``place`` and test its claims; return the sentences for the user.

    A sweep that is no ``preset`` has the figure of its axes, where they can be drawn, and no claim.
    """
    from lethe.report.sweep_figure import axes_figure, outcome, sweep_figure

    picture = place.with_suffix(".png")
    if preset is None:
        if axes_figure(picture, _axes(result), _shown(result), result["rows"]):
            return [f"Figure: {picture}"]
        return []
    drawn = sweep_figure(picture, preset.figure, result["rows"])
    result["figure"] = {"file": picture.name, "points": drawn, **preset.figure.model_dump()}
    result["claims"] = []
    sentences: list[str] = []
    for claim in preset.claims:
        tested = outcome(claim, preset.figure.model, result["rows"])
        result["claims"].append({**claim.model_dump(), **dataclasses.asdict(tested)})
        sentences.append(tested.sentence)
    write_json(place.with_suffix(".json"), result)
    return [*sentences, f"Figure: {picture}"]


def shown(result: dict[str, Json]) -> tuple[list[str], list[list[object]]]:
    """Return the columns, and one row per model and point, of the models that differ between points."""
    rows = result["rows"]
    metrics = _shown(result)
    columns = ["model", *_axes(result)]
    if any(row["forgetting"] for row in rows):
        columns.append("forgetting")
    columns += metrics
    cells = []
    for rows_of_model in _rows_that_differ(result).values():
        for row in rows_of_model:
            cells.append([_bound(row, key) or row.get(key) for key in columns])
    return columns, cells


def _rows_that_differ(result: dict[str, Json]) -> dict[str, list[dict[str, Json]]]:
    """The rows of each model, without the models that no setting of the sweep changes."""
    metrics = _shown(result)
    rows_of_model: dict[str, list[dict[str, Json]]] = {}
    for row in sorted(result["rows"], key=lambda row: str(row["model"])):
        rows_of_model.setdefault(row["model"], []).append(row)
    differing = {}
    for name, rows in rows_of_model.items():
        changes = any(_differ(rows[0], row, metrics) for row in rows)
        if changes or len(result["points"]) == 1:
            differing[name] = rows
    return differing


def matched_sentences(result: dict[str, Json]) -> list[str]:
    """What the sweep says at matched utility, under its caveat; empty where nothing could be matched."""
    sentences = []
    for matched in result["matched_utility"]:
        said = f"none keeps so much, at most {number(matched['most_kept'])}"
        point = matched["chosen"]
        if point is not None:
            said = f"{point['title']} keeps {number(point['kept'])} and leaks {number(point['leakage'])}"
        sentences.append(f"{matched['loss']} ({plural(matched['tried'], 'point')}): {said}.")
    if not sentences:
        return []
    return [MATCHED, *sentences]


def at_matched_utility(result: dict[str, Json], base: str | None) -> list[Matched]:
    """Of each model under test the point of least leakage at which it keeps `KEPT` of Base's score there.

    Empty without Base, leakage or utility.
    """
    rows = result["rows"]
    leakage = _first_of(LEAKAGE, rows)
    utility = _first_of(UTILITY, rows)
    score_of_base = {row["point"]: row.get(utility) for row in rows if row["model"] == base}
    found = []
    for model, rows_of_model in _rows_that_differ(result).items():
        points = []
        for row in rows_of_model:
            score = score_of_base.get(row["point"])
            if row["forgetting"] and score and leakage:
                points.append(KeptAndLeaked(row["point"], row[utility] / score, row[leakage]))
        if points:
            found.append(Matched.of(model, points))
    return found


def _first_of(names: Sequence[str], rows: Sequence[dict[str, Json]]) -> str:
    """The first of these numbers that every row has; empty without any."""
    for name in names:
        if all(row.get(name) is not None for row in rows):
            return name
    return ""


def _differ(first: dict[str, Json], second: dict[str, Json], metrics: Sequence[str]) -> bool:
    """Whether two rows differ in one of these metrics."""
    return any(first.get(metric) != second.get(metric) for metric in metrics)


def _axes(result: dict[str, Json]) -> list[str]:
    """The keys of params.yaml that the points set, without repetition."""
    keys: dict[str, None] = {}
    for settings_of_point in result["points"].values():
        keys |= dict.fromkeys(settings_of_point)
    return [*keys]


def _shown(result: dict[str, Json]) -> list[str]:
    """The headline metrics of the rows, without repetition."""
    names: dict[str, None] = {}
    for row in result["rows"]:
        names |= dict.fromkeys(headline(row))
    return [*names]


def _bound(row: dict[str, Json], key: str) -> Bound | None:
    """Return the value of a column as a `Bound` if it has a guarantee: a bound rounds itself."""
    guarantee = row.get("bounds", {}).get(key)
    value = row.get(key)
    if guarantee is None or value is None:
        return None
    return Bound.from_dict({"value": value, **guarantee})


def guarantee_notes(result: dict[str, Json]) -> list[str]:
    """Return a sentence for each bound that the table of a sweep shows, and one for the other numbers."""
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
