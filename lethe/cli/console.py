"""What every command shares: the options `--json` and `--table`, and the ways of showing a result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.errors import BadValue, visible
from lethe.io.json_files import plain

if TYPE_CHECKING:
    from lethe.api.result import View
    from lethe.results.table import Result


def _parquet(path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() != ".parquet":
        raise BadValue("--table", str(path), "a file that ends in .parquet")
    return path


JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
TableOption = Annotated[
    Path | None,
    typer.Option(
        "--table",
        metavar="FILE",
        callback=_parquet,
        help="Write every number with its ends and guarantee, a row each, to a .parquet file.",
    ),
]


def write_table(path: Path | None, rows: Iterable[Result]) -> None:
    if path is not None:
        from lethe.results import table

        table.write(path, rows)


def print_json(value: object) -> None:
    """Print strict JSON: dataclasses become objects, NumPy values plain ones, what is not finite null."""
    typer.echo(json.dumps(plain(value), allow_nan=False))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()
) -> None:
    """Print a table for people; markup and control characters inside it are shown, not obeyed; bounds are rounded outward.

    In a file or a pipe the table is as wide as needed, so no number is broken in two.
    """
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    from lethe.api.result import cell

    console = Console()
    table = Table(title=Text(cell(title)), title_justify="left", header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(cell(column), justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell(item)) for item in row])
    if not console.is_terminal:
        endless = console.options.update(width=1 << 16)
        console.width = max(console.width, Measurement.get(console, endless, table).maximum)
    console.print(table)
    for note in notes:
        console.print(Text(visible(note)))


def print_view(view: View, notes: Sequence[str] = ()) -> None:
    """Print a part of a result; a part without columns is text, wrapped in a terminal, whose markup is shown."""
    from rich.console import Console
    from rich.text import Text

    if view.columns:
        print_table(view.title, view.columns, view.rows, [*view.notes, *notes])
        return
    console = Console()
    for text in filter(None, (view.title, *view.notes, *notes)):
        console.print(Text(visible(text)), soft_wrap=not console.is_terminal)
