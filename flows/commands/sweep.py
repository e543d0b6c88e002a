"""`lethe sweep`: the pipeline over a grid of params."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import plural
from lethe.statistics.bound import Bound

NAME = re.compile(r"[A-Za-z0-9_-]+")
# The metrics that the table shows; the file has all.
SHOWN = ("greedy_mean", "mean", "sd", "m_mu_worst", "keyword_any", "m_bin_worst", "m_bin_pooled", "retain_greedy")


def command(
    set_: Annotated[
        list[str],
        typer.Option("-S", "--set", metavar="KEY=V1,V2,...", help="An axis of the grid; repeatable."),
    ],
    name: Annotated[str, typer.Option(help="Name of the sweep: data/sweeps/NAME.json.")] = "sweep",
    at_once: Annotated[int | None, typer.Option(min=1, help="Points at once. Default: as many as cores.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Stages at once in a point.")] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Address of a Dask scheduler whose workers see this folder and PREFECT_API_URL's server."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run the pipeline for every combination of values, several points at once; params.yaml stays as it is.

    A stage that points share runs once. A finished point takes seconds when the sweep runs again. Each model becomes a
    run in MLflow. If a point fails, the others finish, and an error names the point.

    Example: `lethe sweep -S unlearn.methods.npo.beta=0.1,0.4 -S unlearn.methods.npo.epochs=10,20`
    """
    from flows import settings, workspace
    from flows.grid import grid
    from flows.server import require, temporary_server
    from lethe import config
    from lethe.errors import BadValue, LetheError
    from lethe.process import cores

    root = Path.cwd()
    if not NAME.fullmatch(name):
        raise BadValue("--name", name, "letters, digits, - and _")
    workspace.prepare(root)
    points = grid(set_)
    for point in points:
        settings.changed(root / config.FILE, point.settings)  # no point runs unless all are valid
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "error")  # Dask logs every step
    with temporary_server(root):
        require()
        from flows.sweep import RESULTS, SWEEPS, sweep

        # Another sweep of this name would change points not yet run.
        with workspace.only_run(root / SWEEPS / name):
            result = sweep(root, points, name, at_once or cores(), jobs, scheduler)
    if as_json:
        print_json(result)
    else:
        place = RESULTS / f"{name}.json"
        print_table(
            f"Sweep {name}",
            *table(result),
            notes=[*guarantee_notes(result), f"Every metric of every model: {place}"],
        )
    if result["failed"]:
        told = "; ".join(f"{point}: {said}" for point, said in result["failed"].items())
        raise LetheError(f"{len(result['failed'])} of {plural(len(points), 'point')} failed. {told}")


def table(result: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Return the columns, and one row per model and point, of the models that differ between points."""
    rows = result["rows"]
    axes = list(dict.fromkeys(key for values in result["points"].values() for key in values))
    metrics = [metric for metric in SHOWN if any(metric in row for row in rows)]
    values: dict[str, set] = {}
    for row in rows:
        values.setdefault(row["model"], set()).add(tuple(row.get(metric) for metric in metrics))
    varying = [name for name in sorted(values) if len(values[name]) > 1 or len(result["points"]) == 1]
    columns = ["model", *axes, *metrics]
    return columns, [
        [_cell(row, key) for key in columns] for name in varying for row in rows if row["model"] == name
    ]


def _cell(row: dict[str, Any], key: str) -> Any:
    """Return the value of a column, as a `Bound` if the value has a guarantee: a bound rounds itself."""
    return _bounds(row).get(key, row.get(key))


def _bounds(row: dict[str, Any]) -> dict[str, Bound]:
    return {
        key: Bound.from_dict({"value": row[key], **guarantee})
        for key, guarantee in row.get("bounds", {}).items()
        if key in SHOWN and row.get(key) is not None
    }


def guarantee_notes(result: dict[str, Any]) -> list[str]:
    """Return the guarantee of each bound of the table; an empty list if there is no bound."""
    told = {
        f"{key}: {bound.relation} so much {bound.guarantee('the forget questions')}."
        for row in result["rows"]
        for key, bound in _bounds(row).items()
    }
    return [*sorted(told), "The others are estimates."] if told else []
