"""Files and hub repositories of published benchmarks, as rows of text cells; errors name file, row and column."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lethe.data.rows import row_problem
from lethe.errors import BadFile, BadInput, BadRow, MissingColumn, shortened
from lethe.io.json_files import read_json, read_text
from lethe.io.tables import LARGEST_CELL

if TYPE_CHECKING:
    from lethe.io.artifacts import Row

NO_HUB = "Check the name and the network, or set {key} to null and data.source to a folder."


@dataclass(frozen=True)
class Entry:
    """One row of a source: its cells by column, and its location in words, such as "line 3"."""

    place: str
    cells: Mapping[str, object]
    path: str

    def text(self, column: str, *, optional: bool = False) -> str:
        """Return the text of a cell without blanks at its ends; raise `BadFile` for any other cell.

        An ``optional`` cell may be missing, null or blank, which gives "".
        """
        cell = self.cells.get(column)
        if cell is None and column in self.cells and not optional:
            raise self.broken(f"column {column!r}: got no value; must be non-empty text")
        if isinstance(cell, int) and not isinstance(cell, bool):
            cell = str(cell)
        if isinstance(cell, str) and (cell.strip() or optional):
            return cell.strip()
        if optional and cell is None:
            return ""
        if column not in self.cells:
            raise self.broken(
                f"no column {column!r}; its columns are {', '.join(map(str, self.cells)) or '(none)'}"
            )
        raise self.broken(f"column {column!r}: got {shortened(cell)}; must be non-empty text")

    def broken(self, problem: str) -> BadInput:
        """The error about this row."""
        if self.place.startswith("line "):
            return BadRow(self.path, int(self.place.removeprefix("line ")), problem)
        return BadFile(self.path, f"{self.place}: {problem}")


def csv_entries(path: Path, columns: Sequence[str]) -> list[Entry]:
    """Return the rows of a CSV; every row must have a cell for each name of the header.

    Blanks after a separating comma are ignored, and so are blank lines.
    """
    csv.field_size_limit(LARGEST_CELL)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), skipinitialspace=True, strict=True)
    header: list[str] | None = None
    entries, begins = [], 1
    try:
        for cells in reader:
            line, begins = begins, reader.line_num + 1
            if not any(map(str.strip, cells)):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                _check_header(path, header, columns)
                continue
            if len(cells) != len(header):
                named = (
                    f"column {header[len(cells)]!r} has no cell" if len(cells) < len(header) else "too many cells"
                )
                problem = f"{named}: got {len(cells)} cells, the header has {len(header)} columns"
                raise BadRow(path, line, problem, "Put a cell that contains a comma into double quotes.")
            entries.append(Entry(f"line {line}", dict(zip(header, cells, strict=True)), str(path)))
    except csv.Error as error:
        raise BadRow(path, begins, f"not valid CSV ({error})") from None
    if header is None:
        raise BadFile(path, "is empty, expected a header and rows")
    return entries


def _check_header(path: Path, header: Sequence[str], columns: Sequence[str]) -> None:
    for column in columns:
        if column not in header:
            raise MissingColumn(path, column, header)
    for column in header:
        if column and header.count(column) > 1:
            raise BadFile(path, f"two columns are called {column!r}", "Rename or remove one.")


def json_entries(path: Path) -> list[Entry]:
    """Return the objects of a JSON file, which must be a list of objects; rows count from 1."""
    whole = read_json(path)
    if not isinstance(whole, list):
        raise BadFile(path, f"holds {type(whole).__name__}, expected a list of objects")
    return _objects(whole, str(path))


def hub_entries(repository: str, part: str | None, split: str, key: str) -> list[Entry]:
    """Return the rows of one split of a repository on the hub."""
    import datasets

    place = "/".join(filter(None, (repository, part, split)))
    try:
        rows = datasets.load_dataset(repository, part, split=split).to_list()
    except Exception as error:  # the library and the network raise many unrelated exceptions
        reason = str(error).strip().splitlines()
        message = reason[0] if reason else type(error).__name__
        problem = f"its part {part!r} cannot be read from the hub ({message})"
        raise BadFile(repository, problem, NO_HUB.format(key=key)) from error
    return _objects(rows, place)


def _objects(rows: Iterable[object], path: str) -> list[Entry]:
    entries = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise BadFile(path, f"row {number}: got {type(row).__name__}, expected an object")
        entries.append(Entry(f"row {number}", row, path))
    return entries


def rows_of(pairs: Iterable[tuple[Entry, Mapping[str, object]]]) -> list[Row]:
    """The rows that a kind made from its entries; raises the error about the entry for a broken row or a duplicate id."""
    rows: list[Row] = []
    seen: dict[object, str] = {}
    for entry, row in pairs:
        if problem := row_problem(row):
            raise entry.broken(problem)
        if row["id"] in seen:
            raise entry.broken(f"id {row['id']!r} already appears in {seen[row['id']]}")
        seen[row["id"]] = entry.place
        rows.append(cast("Row", row))
    return rows


def first_of(folder: Path, *names: str) -> Path:
    """The first of the named files that exists below ``folder``; raises `BadFile`, which lists them all."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    legal = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    raise BadFile(folder, f"holds no file {legal}", "Put it there, or name another folder in data.source.")
