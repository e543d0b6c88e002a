"""`lethe audit swap`: unlearning quality from a file of an adversary's predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.console import JsonFlag, TableOption, print_json, print_table, write_table

if TYPE_CHECKING:
    from lethe.statistics.unlearning_game import Quality


def command(
    predictions: Annotated[
        Path, typer.Option(help="CSV, Parquet or JSON lines: split, member, attack, accept [, weight] [, seed].")
    ],
    alpha: Annotated[float, typer.Option(help="Each attack's interval covers with probability 1 - alpha.")] = 0.05,
    table: TableOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Unlearning quality by the SWAP test: 1 - the largest advantage of any attack in the file.

    A row is one attack's answer on one point: `split` (original or swapped), `member` (forget or test, in that
    split), `attack` (a name), `accept` (probability in [0, 1] that it says "forget"), optionally
    `weight` (sensitivity of the point) and `seed` (one label per model). Models of the two halves must be learned
    and unlearned afresh, and the attack fitted once, on points of neither set.

    Example: `lethe audit swap --predictions predictions.csv`
    """
    from lethe.api.swap_audit import swap

    found = swap(predictions, alpha=alpha)
    write_table(table, found.rows())
    if as_json:
        print_json(found.as_json())
        return
    result = found.quality
    print_table(
        f"Unlearning quality {result.value:.4f} (strongest attack: {result.attack})",
        ["attack", *found.to_frame().columns],
        [
            [name, one.a_original, one.a_swapped, one.value, *(one.bounds() or (None, None))]
            for name, one in result.by_attack.items()
        ],
        [*_about_intervals(result), found.sentences()[-1]],
    )


def _about_intervals(result: Quality) -> list[str]:
    """Return notes on the intervals; with different seeds per attack, some attacks have an interval and some do not."""
    known = [one for one in result.by_attack.values() if one.ci_low is not None]
    without = [name for name, one in result.by_attack.items() if one.ci_low is None]
    notes = []
    if known:
        seeds = " or ".join(str(count) for count in sorted({one.n_seeds for one in known}))
        notes.append(
            f"Intervals: {known[0].method} at {known[0].coverage} over {seeds} seeds; assumes {known[0].assumes}."
        )
    if without:
        which = f" for {', '.join(without)}" if known else ""
        notes.append(f"No intervals{which}: an interval needs several seeds, and a half has a single one.")
    return notes
