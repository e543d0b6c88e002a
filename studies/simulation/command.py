"""`lethe study epsilon-star-simulation`: the simulation of the Epsilon* paper, appendix B."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import BadValue

GAPS = (0, 1, 2, 3)


def command(
    runs: Annotated[int, typer.Option(min=2, help="Draws of each sample size and gap.")] = 10,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=10, help="Losses per side; may be repeated. [1000, 10000, 100000]"),
    ] = None,
    delta: Annotated[float, typer.Option(help="Above 0, under 1/2.")] = 1e-5,
    components: Annotated[
        int, typer.Option(min=1, max=50, help="Gaussians tried for Fig. 6, from 1 up to this.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of every draw.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the table and the pictures.")] = Path(
        "data/simulations/epsilon-star"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Gamma(2, 5) against Gamma(2 + gap, 5): Epsilon* as the paper estimates it, beside the truth, which is known.

    Writes result.json and figure-3.png to figure-6.png. Fig. 6 tests the fit of Gaussian mixtures on the transformed
    losses of gap 3; `lethe study landscape` draws it for trained networks.

    Example: `lethe study epsilon-star-simulation --runs 10`
    """
    from lethe.io.atomic import SCHEMA_VERSION, files_into
    from lethe.io.json_files import write_json
    from lethe.progress import progress
    from studies.simulation import figures, simulation

    if not 0 < delta < 0.5:
        raise BadValue("--delta", delta, "above 0 and under 1/2", "At delta = 0 it is infinite for any gap but 0.")
    sizes = sorted(set(sizes or (1_000, 10_000, 100_000)))
    jobs = [(gap, n) for n in sizes for gap in GAPS]
    with files_into(out) as folder:
        cells = [
            simulation.simulate(gap, n, delta, runs, seed) for gap, n in progress(jobs, "simulation", "settings")
        ]
        tried, held_out = range(1, components + 1), range(100, 1001, 100)
        fits = {
            name: simulation.fit_p_values(values, tried, held_out, seed)
            for name, values in progress(_transformed(seed).items(), "test of fit", "samples", total=2)
        }
        figures.ratio_curves(folder / "figure-3.png", *simulation.ratio_curves(delta, seed=seed))
        figures.same_laws(folder / "figure-4.png", [cell for cell in cells if cell.gap == 0])
        figures.growing_gap(folder / "figure-5.png", cells)
        figures.goodness_of_fit(folder / "figure-6.png", fits, tried, held_out)
        result = {
            "delta": delta,
            "runs": runs,
            "seed": seed,
            "cells": [_cell(cell) for cell in cells],
            "goodness_of_fit": {"components": list(tried), "samples": list(held_out), "p_values": fits},
        }
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **result})
    if as_json:
        print_json(result)
        return
    rows = [
        [cell.n, cell.gap, f"{cell.truth:.2f}", f"{cell.truth_cut:.2f}"]
        + [_shown(cell, name) for name in simulation.ESTIMATES]
        for cell in cells
    ]
    print_table(
        f"Epsilon* of Gamma(2, 5) against Gamma(2 + gap, 5), delta {delta:g}: mean (sd) of {runs} runs",
        ["n", "gap", "truth", "truth, cut delta", *simulation.ESTIMATES],
        rows,
        [f"The pictures: {out}/figure-3.png to figure-6.png"],
    )


def _transformed(seed: int) -> dict[str, Any]:
    """Transformed losses of both sides at gap 3."""
    import numpy as np

    from lethe.statistics.epsilon_star.parametric import Scale
    from studies.simulation.simulation import SCALE, SHAPE

    rng = np.random.default_rng([seed, 6])
    train, population = rng.gamma(SHAPE, SCALE, 4000), rng.gamma(SHAPE + 3, SCALE, 4000)
    scale = Scale.of(train, population)
    return {"training losses": scale.phi(train), "population losses": scale.phi(population)}


def _cell(cell: Any) -> dict[str, Any]:
    values = {name: {"mean": cell.mean(name), "sd": cell.sd(name)} for name in cell.values}
    return {"n": cell.n, "gap": cell.gap, "truth": cell.truth, "truth_cut": cell.truth_cut, "estimates": values}


def _shown(cell: Any, name: str) -> str:
    mean, sd = cell.mean(name), cell.sd(name)
    return "infinite" if mean == float("inf") else f"{mean:.2f} ({sd:.2f})"
