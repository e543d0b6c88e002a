"""`lethe sweep`: the pipeline over a grid of params, or at random points."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.options import SharingScheduler
from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import plural
from lethe.results.quantities import headline
from lethe.statistics.bound import Bound

if TYPE_CHECKING:
    from flows.sweep_presets import SweepPreset

NAME = re.compile(r"[A-Za-z0-9_-]+")


def command(
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "-S",
            "--set",
            metavar="KEY=V1,V2,...",
            help="An axis; repeatable. With --random also KEY=uniform(0,1), log(1e-5,1e-3) or whole(1,20).",
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A sweep of flows/sweeps with a figure and the claims that it tests.")
    ] = None,
    random: Annotated[
        int | None,
        typer.Option(min=1, help="Run this many random points instead of the full grid; duplicates run once."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of --random. [default: 0]")] = None,
    name: Annotated[
        str | None, typer.Option(help="Name: data/sweeps/NAME.json. [default: sweep, or the preset]")
    ] = None,
    at_once: Annotated[int | None, typer.Option(min=1, help="Points at once. Default: as many as cores.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Stages at once in a point.")] = 1,
    scheduler: SharingScheduler = None,
    as_json: JsonFlag = False,
) -> None:
    """Run the pipeline for every combination of values, or at random, several points at once; params.yaml stays as it is.

    A stage that points share runs once. A finished point takes seconds when the sweep runs again, and more points at
    random begin with those there are. Each model becomes a run in MLflow. If a point fails, the others finish, the file
    records the error, and the exit status is 1. A preset also draws data/sweeps/NAME.png and says what held.

    Examples: `lethe sweep -S unlearn.methods.npo.beta=0.1,0.4 -S unlearn.methods.npo.epochs=10,20`,
    `lethe sweep --random 20 -S "unlearn.methods.npo.lr=log(1e-4,1e-3)"`, `lethe sweep --preset fig-4a`
    """
    from flows import settings, workspace
    from flows.grid import axes_of, grid_of, random_points
    from flows.server import require, temporary_server
    from lethe import config
    from lethe.errors import BadValue, LetheError
    from lethe.process import cores

    root = Path.cwd()
    chosen = None
    if preset is not None:
        from flows.sweep_presets import read_sweep_preset

        if set_ or random is not None or seed is not None:
            raise BadValue("--preset", preset, "given without -S, --random and --seed, which the preset fixes")
        chosen = read_sweep_preset(preset)
    elif not set_:
        raise BadValue("-S", None, "one axis at least, or --preset")
    elif seed is not None and random is None:
        raise BadValue("--seed", seed, "left out without --random")
    name = preset or "sweep" if name is None else name
    if not NAME.fullmatch(name):
        raise BadValue("--name", name, "letters, digits, - and _")
    workspace.prepare(root)
    axes = axes_of(set_ or [])
    drawn = random_points(axes, random, seed or 0) if random else []
    points = chosen.points if chosen else drawn or grid_of(axes)
    common = list(chosen.params.items()) if chosen else []
    for point in points:  # no point runs unless all are valid
        settings.changed(root / config.FILE, [*common, *point.settings])
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "error")  # Dask logs every step
    with temporary_server(root):
        require()
        from flows.sweep import RESULTS, SWEEPS, sweep

        # Another sweep of this name would change points not yet run.
        with workspace.only_run(root / SWEEPS / name):
            result = sweep(root, points, name, at_once or cores(), jobs, scheduler, common)
    told = concluded(chosen, result, root / RESULTS / name) if chosen else []
    if as_json:
        print_json(result)
    else:
        place = RESULTS / f"{name}.json"
        print_table(
            f"Sweep {name}",
            *table(result),
            notes=[*told, *guarantee_notes(result), f"Every metric of every model: {place}"],
        )
    if result["failed"]:
        said = "; ".join(f"{point}: {error}" for point, error in result["failed"].items())
        raise LetheError(f"{len(result['failed'])} of {plural(len(points), 'point')} failed. {said}")


def concluded(preset: SweepPreset, result: dict[str, Any], place: Path) -> list[str]:
    """Draw the figure of a preset, add it and the outcome of each claim to the file, and return the sentences."""
    from dataclasses import asdict

    from lethe.io.json_files import write_json
    from lethe.report.sweep_figure import outcome, sweep_figure

    found = [outcome(claim, preset.figure.model, result["rows"]) for claim in preset.claims]
    picture = place.with_suffix(".png")
    drawn = sweep_figure(picture, preset.figure, result["rows"])
    result["figure"] = {"file": picture.name, "points": drawn, **preset.figure.model_dump()}
    result["claims"] = [asdict(one) for one in found]
    write_json(place.with_suffix(".json"), result)
    return [*(one.sentence for one in found), f"Figure: {picture}"]


def table(result: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Return the columns, and one row per model and point, of the models that differ between points."""
    rows = result["rows"]
    axes = list(dict.fromkeys(key for values in result["points"].values() for key in values))
    metrics = _shown(result)
    values: dict[str, set] = {}
    for row in rows:
        values.setdefault(row["model"], set()).add(tuple(row.get(metric) for metric in metrics))
    varying = [name for name in sorted(values) if len(values[name]) > 1 or len(result["points"]) == 1]
    columns = ["model", *axes, *metrics]
    return columns, [
        [_bound(row, key) or row.get(key) for key in columns]
        for name in varying
        for row in rows
        if row["model"] == name
    ]


def _shown(result: dict[str, Any]) -> list[str]:
    """Return the metrics of the table, the headlines; the file has all."""
    return list(dict.fromkeys(key for row in result["rows"] for key in headline(row)))


def _bound(row: dict[str, Any], key: str) -> Bound | None:
    """Return the value of a column as a `Bound` if it has a guarantee: a bound rounds itself."""
    guarantee, value = row.get("bounds", {}).get(key), row.get(key)
    return None if guarantee is None or value is None else Bound.from_dict({"value": value, **guarantee})


def guarantee_notes(result: dict[str, Any]) -> list[str]:
    """Return the guarantee of each bound of the table; an empty list if there is no bound."""
    told = {
        f"{key}: {bound.relation} so much {bound.guarantee('the forget questions')}."
        for row in result["rows"]
        for key in _shown(result)
        if (bound := _bound(row, key))
    }
    return [*sorted(told), "The others are estimates."] if told else []
