"""What every command shares: the `--json` flag and the two ways of printing a result."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated

import typer

from lethe.errors import visible
from lethe.io.json_files import plain
from lethe.statistics.bound import Bound

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]


def print_json(value: object) -> None:
    """Print strict JSON: dataclasses become objects, NumPy values plain ones, what is not finite null."""
    typer.echo(json.dumps(plain(value), allow_nan=False))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()
) -> None:
    """Print a table for people; markup and control characters inside it are shown, not obeyed; bounds are rounded outward.

    In a file or a pipe the table is as wide as needed, so no number is broken in two.

    Parameters
    ----------
    title
        The line above the table.
    columns
        The heads; the first column is aligned to the left, the others to the right.
    rows
        One sequence of cells per row; a `Bound` rounds itself.
    notes
        Lines below the table.
    """
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(title=Text(one_line(title)), title_justify="left", header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(one_line(column), justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*[Text(_cell(item)) for item in row])
    if not console.is_terminal:
        endless = console.options.update(width=1 << 16)
        console.width = max(console.width, Measurement.get(console, endless, table).maximum)
    console.print(table)
    for note in notes:
        console.print(Text(visible(note)))


def one_line(text: str) -> str:
    """Return the text of a file for a cell or a title: escaped and on one line."""
    return visible(text).replace("\n", "\\n")


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, Bound):
        return value.significant()
    if isinstance(value, float):
        return f"{value:.4g}"
    return one_line(str(value))
