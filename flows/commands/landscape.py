"""`lethe landscape`: privacy by Epsilon* against utility, over training strategies of a classifier."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.console import JsonFlag, print_json, print_table


def command(
    name: Annotated[str, typer.Argument(help="A file of flows/landscapes, without its ending.")],
    settings: Annotated[
        list[str] | None, typer.Option("-S", help="Change a value, for example -S data.source=adult.csv.")
    ] = None,
    json: JsonFlag = False,
):
    """Train by epochs and by DP-SGD, several runs each; Epsilon* and a lower bound of every model against its utility.

    Writes result.json, landscape.png and goodness-of-fit.png to data/landscapes/NAME. A landscape that is killed goes
    on where it was: finished runs are kept.

    Example: `lethe landscape digits`, or `lethe landscape adult -S data.source=adult.csv`
    """
    from flows.landscape import draw

    result = draw(name, settings or [])
    if json:
        print_json(result)
        return
    print_table(
        f"{name}: {result['data']}, {result['n_train']:,} to train on and {result['n_population']:,} others; "
        f"means of {result['runs']} runs, delta {result['delta']:.3g}",
        [
            "strategy",
            result["utility"],
            "in training",
            "Epsilon*",
            "with the cut delta",
            "lower bound",
            "frontier",
        ],
        [_row(number, one, result["frontier"]) for number, one in enumerate(result["strategies"])],
        [
            "Epsilon*: parametric, an estimate, with no cut; the paper cuts rates at delta.",
            f"Lower bound: holds for one run with probability {1 - result['alpha']:g}.",
            f"{result['trained']} runs were trained now; the pictures: data/landscapes/{name}",
        ],
    )


def _row(number: int, one: dict[str, Any], frontier: list[int]) -> list[Any]:
    exact = one["epsilon_star"]
    return [
        one["name"],
        one["utility_population"]["mean"],
        one["utility_train"]["mean"],
        f"{exact['mean']:.2f} ({exact['min']:.2f} to {exact['max']:.2f})",
        f"{one['epsilon_star_cut']['mean']:.2f}",
        f"{one['epsilon_lower']['mean']:.2f}",
        "yes" if number in frontier else "",
    ]
