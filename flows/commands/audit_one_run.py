"""`lethe audit one-run`: an epsilon lower bound from one run of a mechanism with n secret bits."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from flows.console import JsonFlag, print_json, print_table


class Mechanism(StrEnum):
    gaussian = "gaussian"
    laplace = "laplace"
    approx_dp = "approx-dp"
    subsampled_gaussian = "subsampled-gaussian"
    dp_sgd = "dp-sgd"
    tradeoff = "tradeoff"


class Method(StrEnum):
    exact = "exact"
    chernoff = "chernoff"
    steinke = "steinke"
    mahloujifar = "mahloujifar"
    independent = "independent"
    clopper_pearson = "clopper-pearson"
    all = "all"


def command(
    guesses: Annotated[Path | None, typer.Option(help="A table with bit, guess and score; needs --r.")] = None,
    n: Annotated[int | None, typer.Option(help="Secret bits, without --guesses.")] = None,
    r: Annotated[int | None, typer.Option(help="Guesses released, fixed beforehand.")] = None,
    errors: Annotated[int | None, typer.Option(help="Wrong ones among them, without --guesses.")] = None,
    mechanism: Annotated[Mechanism, typer.Option(help="The family of nulls.")] = Mechanism.gaussian,
    q: Annotated[float | None, typer.Option(help="Sampling rate (subsampled-gaussian, dp-sgd).")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps (dp-sgd).")] = None,
    delta0: Annotated[float | None, typer.Option(help="Delta of the null (approx-dp). [default: --delta]")] = None,
    tradeoff: Annotated[Path | None, typer.Option(help="A table with alpha and beta: one null.")] = None,
    delta: Annotated[float, typer.Option(help="Delta at which epsilon is told.")] = 1e-5,
    alpha: Annotated[float, typer.Option(help="The bound may fail with this probability.")] = 0.05,
    method: Annotated[Method, typer.Option(help="One method, or all that apply side by side.")] = Method.all,
    null: Annotated[
        float | None, typer.Option(help="Null of the p-value: mu, for approx-dp epsilon, for dp-sgd sigma.")
    ] = None,
    claimed_epsilon: Annotated[float | None, typer.Option(help="Compare with this claim.")] = None,
    json: JsonFlag = False,
) -> None:
    """The largest epsilon that one run of a mechanism contradicts, by every method, each with what it assumes.

    Example: `lethe audit one-run --n 1000 --r 200 --errors 26 --mechanism gaussian --delta 1e-5`
    """
    from flows import one_run
    from stages.errors import BadInput

    if guesses is not None:
        if n is not None or errors is not None:
            raise BadInput("--guesses: a file tells n and errors; leave out --n and --errors.")
        if r is None:
            raise BadInput("--r: needed with --guesses; fix it before looking at the guesses.")
        counts = one_run.read_guesses(guesses, r)
    else:
        if n is None or r is None or errors is None:
            raise BadInput("lethe audit one-run: give --guesses FILE and --r, or --n, --r and --errors.")
        from stages.statistics.one_run.counts import Counts

        counts = Counts(n, r, errors)
    if (mechanism == Mechanism.tradeoff) != (tradeoff is not None):
        raise BadInput("--tradeoff: goes with --mechanism tradeoff, and only with it.")
    if tradeoff is not None:
        results = one_run.audit_tradeoff(counts, tradeoff, delta=delta, alpha=alpha, method=method)
    else:
        family = one_run.family_of(mechanism, q=q, steps=steps, delta0=delta0, delta=delta)
        results = one_run.audit_family(counts, family, delta=delta, alpha=alpha, method=method, null=null)
    whole = {
        "results": results,
        "n": counts.n,
        "r": counts.r,
        "errors": counts.errors,
        "delta": delta,
        "alpha": alpha,
        "mechanism": str(mechanism),
    }
    if claimed_epsilon is not None:
        whole["verdict"] = one_run.verdict(results, claimed_epsilon)
    if json:
        print_json(whole)
        return
    rows = [
        [
            row["method"],
            "family rejected" if row["epsilon_lower"] is None else row["epsilon_lower"],
            row["p_value"],
            ", ".join(row["assumes"]),
        ]
        for row in results
    ]
    notes = [f"{row['method']}: {row['note']}." for row in results if row["note"]]
    notes.insert(0, f"Each bound holds with probability {1 - alpha:g} if its assumptions do; delta {delta:g}.")
    if claimed_epsilon is not None:
        against = ", ".join(whole["verdict"]["contradicted_by"])
        notes.append(
            f"Claimed epsilon {claimed_epsilon:g}: "
            + (f"contradicted by {against}." if against else "not contradicted.")
        )
    print_table(
        f"{counts.errors} errors among {counts.r} of {counts.n}, {mechanism}",
        ["method", "epsilon at least", "p-value", "assumes"],
        rows,
        notes,
    )
