"""`lethe study landscape`: privacy by Epsilon* against utility, over training strategies of a classifier."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import plural
from lethe.text import number

if TYPE_CHECKING:
    from studies.landscape.study import MeasuredStrategy


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
    from studies.landscape.draw import draw

    drawn = draw(name, settings or [])
    if as_json:
        print_json(drawn.as_json())
        return
    result = drawn.result
    strategies, common = _without_what_is_common(result.strategies)
    print_table(
        f"{name}: {result.data}, {result.n_train:,} to train on and {result.n_population:,} others; "
        f"means of {plural(result.runs, 'run')}, delta {result.delta:.3g}",
        [
            "strategy",
            result.utility,
            "training",
            "Epsilon*",
            "range",
            "cut",
            "lower",
        ],
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
