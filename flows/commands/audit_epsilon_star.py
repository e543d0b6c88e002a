"""`lethe audit epsilon-star`: the privacy of one trained model from two files of losses."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flows.console import JsonFlag, print_json, print_table


class Method(StrEnum):
    empirical = "empirical"
    parametric = "parametric"


class Lower(StrEnum):
    split = "split"
    band = "band"


def command(
    train: Annotated[Path, typer.Option(help="Losses on the training set: one a line, or a table with `loss`.")],
    population: Annotated[Path, typer.Option(help="Losses on data that the model never saw, in the same form.")],
    delta: Annotated[float, typer.Option(help="Well under 1/n, for example 1/(n ln n).")],
    method: Annotated[Method, typer.Option(help="How Epsilon* is estimated.")] = Method.empirical,
    cut: Annotated[
        float | None,
        typer.Option(help="Keep FPR and FNR inside (cut, 1 - cut), as the paper does. [default: none]"),
    ] = None,
    alpha: Annotated[float, typer.Option(help="The lower bound may fail with this probability.")] = 0.05,
    lower: Annotated[Lower, typer.Option(help="How the lower bound is certified.")] = Lower.split,
    train_complete: Annotated[
        bool,
        typer.Option("--train-complete", help="The training file holds the losses of the whole training set."),
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Epsilon* of one model, exactly and uncut unless asked, beside a lower bound that holds with 1 - alpha.

    Example: `lethe audit epsilon-star --train member.csv --population other.csv --delta 1e-5`
    """
    from flows.losses import audit, read_losses

    result = audit(
        read_losses(train),
        read_losses(population),
        delta=delta,
        method=method,
        cut=cut,
        alpha=alpha,
        lower=lower,
        train_complete=train_complete,
    )
    if json:
        print_json(result)
        return
    value = "infinite" if result["infinite"] else result["epsilon_star"]
    rows = [
        ["Epsilon* (estimate, biased upward)", value],
        [f"Epsilon* at least (alpha {alpha:g}, {result['lower_method']})", result["epsilon_lower"]],
        ["delta", delta],
        ["cut", "none" if cut is None else cut],
        ["losses: training, population", f"{result['n_train']}, {result['n_population']}"],
        ["threshold", result["threshold"]],
    ]
    notes = [f"Assumes: {result['assumes']}."]
    if result["fit"]:
        fit = result["fit"]
        rows.append(["KS p-values of the fit", f"{fit['ks_train']:.3g}, {fit['ks_population']:.3g}"])
    if result["note"]:
        notes.append(f"Note: {result['note']}.")
    print_table(f"Epsilon*, {method}", ["", "value"], rows, notes)
