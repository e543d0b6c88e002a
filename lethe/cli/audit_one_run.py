"""`lethe audit one-run`: an epsilon lower bound from one run of a mechanism with n secret bits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lethe.audits.one_run.mechanisms import TRADEOFF, Mechanism, misfit
from lethe.cli.console import JsonFlag, print_json, print_table

if TYPE_CHECKING:
    from lethe.statistics.one_run.channel import Channel, Family
    from lethe.statistics.one_run.counts import Counts
    from lethe.statistics.one_run.summary import OneRunAudit


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
    as_json: JsonFlag = False,
) -> None:
    """The largest epsilon that one run of a mechanism contradicts, by every method, each with what it assumes.

    `exact` is the tightest where each bit has a channel of its own; `steinke` and `mahloujifar` hold under any
    dependence. A claim is judged by `exact` unless --method names another.

    Example: `lethe audit one-run --n 1000 --r 200 --errors 26 --mechanism gaussian --delta 1e-5`
    """
    from lethe.errors import BadInput
    from lethe.statistics.one_run.audit import check_levels
    from lethe.statistics.one_run.summary import audit_runs

    check_levels(delta, alpha)
    runs = _runs(guesses, n, r or [], errors, seed)
    if (mechanism == TRADEOFF) != (tradeoff is not None):
        raise BadInput("--tradeoff: goes with --mechanism tradeoff, and only with it.")
    if tradeoff is not None and (null is not None or curve):
        raise BadInput("--null, --curve: a trade-off file is one null; leave them out.")
    if (steps or 0) >= SLOW_STEPS:
        typer.echo(f"dp-sgd over {steps:,} steps takes up to a minute.", err=True)
    whole = audit_runs(
        runs,
        _nulls(mechanism, tradeoff, q=q, steps=steps, delta0=delta0, delta=delta),
        delta=delta,
        alpha=alpha,
        method=method,
        null=null,
        claimed=claimed_epsilon,
        curve=curve,
    )
    if as_json:
        print_json({**whole.as_json(), "mechanism": str(mechanism)})
    else:
        _show(whole, str(mechanism))


def _runs(guesses: Path | None, n: int | None, r: list[int], errors: int | None, seed: int) -> list[Counts]:
    """The counts of the run: one for each r."""
    from lethe.errors import BadInput, BadValue
    from lethe.statistics.one_run.counts import Counts

    if guesses is None:
        if n is None or not r or errors is None:
            raise BadInput("lethe audit one-run: give --guesses FILE and --r, or --n, --r and --errors.")
        if len(r) > 1:
            raise BadValue(
                "--r", r, "one number with --errors", "Several need the guesses themselves (--guesses)."
            )
        return [Counts(n, r[0], errors)]
    if n is not None or errors is not None:
        raise BadInput("--guesses: the file gives n and errors; leave out --n and --errors.")
    if not r:
        raise BadInput("--r: needed with --guesses; fix it before looking at the guesses.")
    from lethe.audits.one_run.guesses import read_guesses
    from lethe.statistics.one_run.release import release

    read = read_guesses(guesses)
    return [release(read.bits, read.guesses, read.scores, one, seed) for one in dict.fromkeys(r)]


def _nulls(
    mechanism: str,
    tradeoff: Path | None,
    *,
    q: float | None,
    steps: int | None,
    delta0: float | None,
    delta: float,
) -> Family | Channel:
    """The family of nulls, or the one null of a trade-off file.

    Raises `BadInput` about an option that the mechanism lacks or does not take.
    """
    from lethe.audits.one_run.guesses import family_of, read_tradeoff
    from lethe.errors import BadInput

    if wrong := misfit(mechanism, q=q, steps=steps, delta0=delta0):
        raise BadInput(f"--{wrong}")
    if tradeoff is not None:
        return read_tradeoff(tradeoff)
    return family_of(mechanism, q=q, steps=steps, delta0=delta0, delta=delta)


def _show(whole: OneRunAudit, mechanism: str) -> None:
    from lethe.statistics.bound import level
    from lethe.statistics.one_run.audit import ASSUMPTIONS, not_conservative
    from lethe.text import listing

    rows = [
        [
            row.method,
            whole.bound(row) or "family rejected",
            row.p_value,
            ", ".join(row.assumes),
        ]
        for row in whole.results
    ]
    notes = [
        f"Each bound, {listing(not_conservative())}'s excepted, holds {level(whole.alpha)} if its "
        f"assumptions do; delta {whole.delta:g}.",
        *(f"{row.method}: {row.note}." for row in whole.results),
        *(
            f"{flag}: {text}."
            for flag, text in ASSUMPTIONS.items()
            if any(flag in row.assumes for row in whole.results)
        ),
    ]
    if verdict := whole.verdict:
        others = ", ".join(verdict.contradicted_by) or "none"
        notes.append(
            f"Claimed epsilon {verdict.claimed_epsilon:g}: {'' if verdict.contradicted else 'not '}contradicted "
            f"by {verdict.method}, which decides; contradicted by {others} of all."
        )
    print_table(
        f"{whole.errors} {'error' if whole.errors == 1 else 'errors'} among {whole.r} of {whole.n}, {mechanism}",
        ["method", "epsilon at least", "p-value", "assumes"],
        rows,
        notes,
    )
    if whole.curve:
        print_table("p-values by epsilon", list(whole.curve[0]), [list(row.values()) for row in whole.curve])
