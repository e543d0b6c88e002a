"""How a table of text separates its columns, which its header shows: comma, semicolon, tab or bar."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TextIO

from lethe.errors import BadFile, BadRow
from lethe.io.packed import opened, suffix_of

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
SUFFIXES = (".csv", ".tsv")
LARGEST_CELL = 1 << 30  # characters


class Record(NamedTuple):
    """A row of a CSV, or its header, and the line on which it begins."""

    line: int
    cells: list[str]


@dataclass(frozen=True)
class CsvForm:
    """The separator of a table, its header, and the line on which the header stands."""

    separator: str
    header: tuple[str, ...]
    line: int

    @property
    def name(self) -> str:
        """What a person calls such a table.

        >>> CsvForm(";", ("id", "leaked"), 1).name
        'semicolon table'
        """
        return f"{SEPARATORS[self.separator]} table"


def form_of(path: Path, required: Sequence[str] = ()) -> CsvForm:
    """Return the form of a table by its header.

    Of several separators that cut the header, the one counts that gives the columns ``required``, and else the comma.

    Raises
    ------
    BadFile
        If the file is empty, or two separators other than the comma cut the header.
    """
    forms: dict[str, CsvForm] = {}
    for separator in SEPARATORS:
        with text_of(path) as text:
            first = next(records(text, separator), None)
        if first is None:
            raise BadFile(path, "is empty, expected a header and rows")
        forms[separator] = CsvForm(separator, tuple(first.cells), first.line)
    if suffix_of(path) == ".tsv":
        return forms["\t"]
    cutting = [form for form in forms.values() if len(form.header) > 1]
    fitting = [form for form in cutting if set(required) <= set(form.header)]
    if len(fitting) == 1:
        return fitting[0]
    if len(cutting) == 1:
        return cutting[0]
    if not cutting or forms[","] in cutting:
        return forms[","]
    names = " or a ".join(SEPARATORS[form.separator] for form in cutting)
    problem = f"its header could be separated by a {names}"
    raise BadFile(path, problem, "Write the table with one of them, or with commas.")


def text_of(path: Path) -> TextIO:
    """Open a plain or packed file as UTF-8 without its byte order mark, whose ends of lines stay as they are."""
    return io.TextIOWrapper(opened(path), encoding="utf-8-sig", newline="")


def rows_of(path: Path) -> tuple[CsvForm, Iterator[Record]]:
    """Return the form of a table and its header and rows."""
    form = form_of(path)
    return form, records(text_of(path), form.separator)


def records(text: TextIO, separator: str) -> Iterator[Record]:
    """Yield the header and the rows of a CSV; blank lines are rows only under a single column."""
    csv.field_size_limit(LARGEST_CELL)
    reader = csv.reader(text, delimiter=separator)
    begins = 1
    columns = 0  # of the header, once it is read
    for cells in reader:
        blank = not cells or (len(cells) == 1 and cells[0] and not cells[0].strip(" \t"))
        if columns == 1 or not blank:
            columns = columns or len(cells)
            yield Record(begins, cells)
        begins = reader.line_num + 1


def line_of(path: Path, row: int) -> int:
    """Return the line on which ``row`` (from 0) of a table begins; the last line of a shorter table."""
    form = form_of(path)
    with text_of(path) as text:
        wanted = next(itertools.islice(records(text, form.separator), row + 1, None), None)
    if wanted is not None:
        return wanted.line
    with opened(path) as file:
        return sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b"")) + 1


def broken_utf8(path: Path) -> BadRow:
    """The error that names the first line that is not UTF-8."""
    line = 1
    with opened(path) as file:
        for content in file:
            try:
                content.decode("utf-8")
            except UnicodeDecodeError:
                break
            line += 1
    return BadRow(path, line, "not valid UTF-8", "Convert the file to UTF-8.")
