"""`lethe study landscape`: privacy by Epsilon* against utility, over training strategies of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import plural
from lethe.text import number

if TYPE_CHECKING:
    from studies.landscape.study import LandscapeResult, MeasuredStrategy

OUT = Path("data/landscapes")


def command(
    name: Annotated[str, typer.Argument(help="A file of studies/landscape/presets, without its ending.")],
    settings: Annotated[
        list[str] | None, typer.Option("-S", help="Change a value, for example -S data.source=adult.csv.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Train by epochs and by DP-SGD, several runs each; Epsilon* and a lower bound of every model against its utility.

    Writes result.json, landscape.png and goodness-of-fit.png to data/landscapes/NAME. A killed landscape
    keeps its finished runs.

    Example: `lethe study landscape digits`, or `lethe study landscape adult -S data.source=adult.csv`
    """
    from lethe.statistics.bound import level

    result, values = draw(name, settings or [])
    if as_json:
        print_json(values)
        return
    strategies, common = _without_what_is_common(result.strategies)
    print_table(
        f"{name}: {result.data}, {result.n_train:,} to train on and {result.n_population:,} others; "
        f"means of {plural(result.runs, 'run')}, delta {result.delta:.3g}",
        ["strategy", result.utility, "training", "Epsilon*", "range", "cut", "lower"],
        [_row(one) for one in strategies],
        [
            *([f"Every strategy with DP: {common}."] if common else []),
            f"Pareto frontier: {'; '.join(strategies[place].name for place in result.frontier)}.",
            f"{result.utility}: on the others; training: on what was learnt.",
            "Epsilon*: parametric, an estimate, with no cut; range: least to most; cut: the paper's, of rates at delta.",
            f"lower: mean of the runs' lower bounds; each holds for its run {level(result.alpha)}.",
            f"Trained now: {plural(result.trained, 'run')}; the pictures: data/landscapes/{name}",
        ],
    )


def draw(name: str, changes: Sequence[str]) -> tuple[LandscapeResult, dict[str, object]]:
    """Train all unfinished models, measure, draw; return the result, and its JSON as data/landscapes/NAME holds it."""
    from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
    from lethe.io.json_files import write_json
    from studies.landscape.picture import landscape as picture
    from studies.landscape.settings import read
    from studies.landscape.study import Landscape
    from studies.simulation import figures
    from studies.simulation.simulation import fit_p_values

    settings = read(name, changes)
    study = Landscape(settings)
    result = study.result()
    values, fit = asdict(result), settings.goodness_of_fit
    with atomic_folder(OUT / name) as folder:
        picture(folder / "landscape.png", result)
        if fit is not None:
            components = range(1, fit.components + 1)
            tables = {
                title: fit_p_values(losses, components, fit.samples, settings.seed)
                for title, losses in study.transformed_losses().items()
            }
            figures.goodness_of_fit(folder / "goodness-of-fit.png", tables, components, fit.samples)
            values["goodness_of_fit"] = {
                "components": list(components),
                "samples": fit.samples,
                "p_values": tables,
            }
        whole = {"schema": SCHEMA_VERSION, "settings": settings.model_dump(), **values}
        write_json(folder / "result.json", whole)
    return result, values


def _without_what_is_common(strategies: list[MeasuredStrategy]) -> tuple[list[MeasuredStrategy], str]:
    """Shorten the names by the parts that all strategies with DP share, and return these parts."""
    parts = [one.name.split(", ") for one in strategies]
    private = [names for names in parts if len(names) > 1]
    shared = [part for part in private[0] if all(part in names for names in private)] if len(private) > 1 else []
    short = [", ".join(part for part in names if part not in shared) for names in parts]
    return [replace(one, name=name) for one, name in zip(strategies, short, strict=True)], ", ".join(shared)


def _row(one: MeasuredStrategy) -> list[object]:
    exact = one.epsilon_star
    return [
        one.name,
        one.utility_population.mean,
        one.utility_train.mean,
        f"{exact.mean:.2f}",
        f"{exact.min:.2f}–{exact.max:.2f}",
        f"{one.epsilon_star_cut.mean:.2f}",
        number(one.epsilon_lower.mean, 2, "down"),
    ]
