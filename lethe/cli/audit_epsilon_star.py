"""`lethe audit epsilon-star`: the privacy of one trained model from two files of losses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lethe.cli.console import JsonFlag, TableOption, print_json, print_table, write_table

if TYPE_CHECKING:
    from lethe.api.epsilon_star_audit import EpsilonStarAudit


def command(
    train: Annotated[Path, typer.Option(help="Losses on the training set: one per line, or a table with `loss`.")],
    population: Annotated[Path, typer.Option(help="Losses on data that the model never saw, in the same form.")],
    delta: Annotated[float, typer.Option(help="Well under 1/n of the training set, for example 1/(n ln n).")],
    method: Annotated[
        Literal["parametric", "empirical"], typer.Option(help="How Epsilon* is estimated.")
    ] = "parametric",
    cut: Annotated[
        float | None,
        typer.Option(help="Keep FPR and FNR inside (cut, 1 - cut), to compare with published values."),
    ] = None,
    components: Annotated[
        int, typer.Option(help="Gaussians per side that the parametric method fits; the paper uses 1.")
    ] = 1,
    alpha: Annotated[float, typer.Option(help="The lower bound may fail with this probability.")] = 0.05,
    lower: Annotated[Literal["split", "band"], typer.Option(help="How the lower bound is certified.")] = "split",
    train_complete: Annotated[
        bool,
        typer.Option("--train-complete", help="The training file holds the losses of the whole training set."),
    ] = False,
    table: TableOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Epsilon* of one model, with no numerical cut unless asked, beside a lower bound that holds with 1 - alpha.

    A point is called a member when its loss is at most a threshold. `parametric` fits a Gaussian to the transformed
    losses of either side and takes the exact supremum; `empirical` takes the observed shares. Both are estimates. The
    lower bound assumes no distribution: `split` chooses threshold and ratio on one half of the losses and certifies
    them on the other; `band` holds at all thresholds at once.

    Example: `lethe audit epsilon-star --train member.csv --population other.csv --delta 1e-5`
    """
    from lethe.api.epsilon_star_audit import epsilon_star

    result = epsilon_star(
        train,
        population,
        delta=delta,
        method=method,
        cut=cut,
        components=components,
        alpha=alpha,
        lower=lower,
        train_complete=train_complete,
    )
    write_table(table, result.rows())
    print_json(result.as_json()) if as_json else _print(result)


def _print(result: EpsilonStarAudit) -> None:
    from lethe.statistics.epsilon_star.parametric import rejected_fit

    estimate: str | float = rejected_fit(result.epsilon_star, result.fit.ks_p_values if result.fit else None) or (
        "infinite" if result.infinite else result.epsilon_star
    )
    rows: list[list[object]] = [
        [f"Epsilon* at least, {result.bound.level()}; {result.bound.method}", result.bound],
        [f"Epsilon* ({result.method}, an estimate)", estimate],
        ["delta", result.delta],
        ["cut", "none" if result.cut is None else result.cut],
        ["losses: training, population", f"{result.n_train}, {result.n_population}"],
        ["threshold of the estimate", result.threshold],
        ["threshold of the lower bound", result.lower_threshold],
    ]
    if result.fit:
        p_values = result.fit.ks_p_values
        rows.append(
            ["p-values of the fit (KS): training, population", ", ".join(f"{p:.3g}" for p in p_values.values())]
        )
    notes = [f"Assumes: {result.bound.assumes}."]
    if result.note:
        notes.append(f"Note: {result.note}.")
    print_table("Epsilon*", ["", "value"], rows, notes)
