"""`lethe audit one-run`: an epsilon lower bound from one run of a mechanism with n secret bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lethe.audits.one_run.mechanisms import TRADEOFF, Mechanism, misfit
from lethe.cli.console import JsonFlag, TableOption, print_json, print_table, write_table

if TYPE_CHECKING:
    from lethe.api.one_run_audit import OneRunAudit

SLOW_STEPS = 100_000


def command(
    guesses: Annotated[Path | None, typer.Option(help="A table with bit, guess and score; needs --r.")] = None,
    n: Annotated[int | None, typer.Option(help="Secret bits, without --guesses.")] = None,
    r: Annotated[
        list[int] | None,
        typer.Option(help="Guesses released, fixed beforehand. Repeated: each r at alpha / their number."),
    ] = None,
    errors: Annotated[int | None, typer.Option(help="Wrong ones among them, without --guesses.")] = None,
    mechanism: Annotated[Literal[Mechanism, "tradeoff"], typer.Option(help="The family of nulls.")] = "gaussian",
    q: Annotated[float | None, typer.Option(help="Sampling rate (subsampled-gaussian, dp-sgd).")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps (dp-sgd), up to 1,000,000.")] = None,
    delta0: Annotated[float | None, typer.Option(help="Delta of the null (approx-dp). [default: --delta]")] = None,
    tradeoff: Annotated[
        Path | None,
        typer.Option(
            help="A table with alpha and beta: one null. Between its points the worst convex curve counts, so "
            "give a fine grid (hundreds of points, finer towards both ends)."
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta at which epsilon is bounded.")] = 1e-5,
    alpha: Annotated[float, typer.Option(help="The bound may fail with this probability.")] = 0.05,
    method: Annotated[str, typer.Option(help="One method by its name, or all that apply side by side.")] = "all",
    null: Annotated[
        float | None,
        typer.Option(
            help="Null of the p-value: mu, for approx-dp epsilon, for dp-sgd sigma. [default: the claim's, if any]"
        ),
    ] = None,
    claimed_epsilon: Annotated[float | None, typer.Option(help="Test this claim at --delta.")] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Add the p-values over a range of epsilons.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Breaks ties between scores at the cut.")] = 0,
    table: TableOption = None,
    as_json: JsonFlag = False,
) -> None:
    """The largest epsilon that one run of a mechanism contradicts, by every method, each with what it assumes.

    `exact` is the tightest where each bit has a channel of its own; `steinke` and `mahloujifar` hold under any
    dependence. A claim is judged by `exact` unless --method names another.

    Example: `lethe audit one-run --n 1000 --r 200 --errors 26 --mechanism gaussian --delta 1e-5`
    """
    from lethe.api.one_run_audit import one_run
    from lethe.errors import BadInput

    if guesses is None and (n is None or not r or errors is None):
        raise BadInput("lethe audit one-run: give --guesses FILE and --r, or --n, --r and --errors.")
    if (mechanism == TRADEOFF) != (tradeoff is not None):
        raise BadInput("--tradeoff: goes with --mechanism tradeoff, and only with it.")
    if wrong := misfit(mechanism, q=q, steps=steps, delta0=delta0):
        raise BadInput(f"--{wrong}")
    if (steps or 0) >= SLOW_STEPS:
        typer.echo(f"dp-sgd over {steps:,} steps takes up to a minute.", err=True)
    whole = one_run(
        n=n,
        r=r or [],
        errors=errors,
        guesses=guesses,
        mechanism=str(mechanism),
        q=q,
        steps=steps,
        delta0=delta0,
        tradeoff=tradeoff,
        delta=delta,
        alpha=alpha,
        method=method,
        null=null,
        claimed_epsilon=claimed_epsilon,
        curve=curve,
        seed=seed,
    )
    write_table(table, whole.rows())
    print_json(whole.as_json()) if as_json else _show(whole)


def _show(whole: OneRunAudit) -> None:
    title, level, *others = whole.sentences()
    notes = [level, *(f"{row.method}: {row.note}." for row in whole.results), *others]
    rows = [
        [row.method, whole.bound(row) or "family rejected", row.p_value, ", ".join(row.assumes)]
        for row in whole.results
    ]
    print_table(title, ["method", "epsilon at least", "p-value", "assumes"], rows, notes)
    if whole.curve:
        print_table("p-values by epsilon", list(whole.curve[0]), [list(row.values()) for row in whole.curve])
