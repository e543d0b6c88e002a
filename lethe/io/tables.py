"""Tables of artifacts and of users, read with errors that name the file, the line and the column."""

from __future__ import annotations

import io
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from lethe.errors import BadFile, BadRow, check_columns, shortened
from lethe.io import csv_form
from lethe.io.cells import MISSING, NoNumber, NumberColumn, numbers_of
from lethe.io.csv_form import CsvForm
from lethe.io.files import (
    METADATA,
    STAMP,
    Json,
    atomic_file,
    check_file,
    check_metadata,
    doubled,
    read_records,
    read_text,
)
from lethe.io.ids import NAMELESS, WHOLE, alike_in, as_text
from lethe.io.ids import REMEDY as ALIKE_REMEDY
from lethe.io.packed import suffix_of
from lethe.io.unseen import seen

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

JUDGE = "judge"  # the column that names the judge whose verdicts a table has
TABLE_SUFFIXES = (".csv", ".parquet", ".jsonl", ".json", ".tsv")
# What begins a formula in a spreadsheet, also in the wide letters of East Asian fonts
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
MAGIC = b"PAR1"  # the first and the last bytes of a Parquet file
AGAIN = "Write or copy the file again; delete a file that a stage wrote, and `lethe run` makes it again."
# Of a user's table; pandas takes a millisecond for each column, and no result shows more.
MOST_COLUMNS = 2_000
MOST_CELLS = 50_000_000  # of a Parquet file, which holds a column of equal cells in a few bytes


def write_parquet(path: str | os.PathLike, table: pd.DataFrame) -> None:
    """Write a frame without its index as a Parquet file that carries the version of artifacts."""
    import pyarrow as pa

    write_arrow(path, pa.Table.from_pandas(table, preserve_index=False))


def write_arrow(path: str | os.PathLike[str], arrow: pa.Table) -> None:
    """Write a table as Parquet to a temporary name, with the schema version, and move it to its place."""
    import pyarrow.parquet as pq

    arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), **STAMP})
    with atomic_file(path) as temporary:
        pq.write_table(arrow, temporary)


def write_csv(path: str | os.PathLike, table: pd.DataFrame) -> None:
    """Write a table as CSV whose text is harmless in a spreadsheet and in a terminal (`harmless`)."""
    import pandas as pd

    safe = table.rename(columns=lambda name: harmless(str(name)))
    for place in range(safe.shape[1]):
        column = safe.iloc[:, place]
        if not pd.api.types.is_numeric_dtype(column):
            safe.isetitem(place, [_harmless_value(value) for value in column])
    with atomic_file(path) as temporary:
        safe.to_csv(temporary, index=False, lineterminator="\n")


def _harmless_value(value: object) -> object:
    if isinstance(value, str):
        return harmless(value)
    return value


def harmless(cell: str) -> str:
    """Return a text as a cell for a CSV: no formula, no control character.

    A spreadsheet computes a cell that begins with one of `FORMULA`, and such a formula can send the sheet to a server. The
    cell gets an apostrophe in front, unless the cell is a number. Control characters except tab and the ends of lines
    become escapes such as ``\\x1b``.
    """
    text = CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", cell)
    if cell.lstrip(" ").startswith(FORMULA) and not looks_like_a_number(cell):
        return f"'{text}"
    return text


def read_table(
    path: str | os.PathLike,
    required: Sequence[str] = (),
    text: Sequence[str] = (),
    optional: Sequence[str] = (),
    ids: Sequence[str] = (),
) -> pd.DataFrame:
    """Read a user's table by the ending of the file: CSV with any separator, Parquet, JSON lines, or a list of records;
    all but Parquet also packed (.gz, .zst).

    The frame keeps the row order of the file; `file_line` gives the line of a row. In a CSV with one column, a blank
    line is a row without a value, except at the end of the file. Columns of ``ids`` hold text: two ids that differ only in
    type, in blanks or in characters that cannot be seen are refused. Columns of ``text`` hold text where the file is a CSV.

    Raises
    ------
    BadFile, BadRow
        If the file cannot be read, lacks a column of ``required``, spells a column of ``required``, ``text`` or ``optional``
        in another way, or has a list or an object as a label.
    """
    path = Path(path)
    check_file(path)
    suffix = suffix_of(path)
    text = [*text, *ids]
    if suffix in csv_form.SUFFIXES:
        table = _read_csv(path, required, text)
    elif suffix == ".parquet":
        table = _read_parquet(path)
    elif suffix in (".jsonl", ".json"):
        table = frame_of(path, [row for _, row in read_records(path)], ids)
    else:
        legal = ", ".join(TABLE_SUFFIXES)
        raise BadFile(path, f"ends in {suffix or 'nothing'!r}; must be one of {legal}")
    check_names(path, [str(column) for column in table.columns], [*required, *text, *optional])
    absent = [column for column in required if column not in table.columns]
    if absent and suffix in csv_form.SUFFIXES and all(map(looks_like_a_number, table.columns)):
        numbers = ", ".join(map(str, table.columns))
        problem = f"its first line ({numbers}) holds numbers, and a CSV begins with column names"
        raise BadFile(path, problem, f"Add a first line with {absent[0]!r}.")
    check_columns(path, required, table.columns)
    _check_labels(path, table, text)
    ids_as_text(path, table, ids)
    return table


def frame_of(
    path: Path, rows: Sequence[Mapping[str, Json]], ids: Sequence[str] = ()
) -> pd.DataFrame:
    """The objects of JSON lines as a frame, with each of the ``ids`` as it is written: pandas would make 1 and 1.0 one."""
    import pandas as pd

    check_width(path, len(set(itertools.chain.from_iterable(rows))))
    table = pd.DataFrame(rows)
    for name in set(ids) & set(table.columns):
        table[name] = pd.Series([row.get(name) for row in rows], dtype=object)
    _check_labels(path, table, ids)
    return table


def _check_labels(path: Path, table: pd.DataFrame, columns: Sequence[str]) -> None:
    import pandas as pd

    for column in columns:
        if column not in table.columns or table[column].dtype != object:
            continue
        for place, value in enumerate(table[column]):
            if not pd.api.types.is_scalar(value):
                problem = f"column {column}: got {value!r}, expected a label: a text or a number"
                raise BadRow(path, file_line(path, place), problem)


def ids_as_text(path: Path, table: pd.DataFrame, ids: Sequence[str]) -> None:
    """Turn columns of ids into text; two that differ only in what cannot be seen are refused by both names."""
    for column in set(ids) & set(table.columns):
        found = alike_in(table[column])
        if found is not None:
            line = file_line(path, found.place)
            raise BadRow(path, line, found.problem(column), ALIKE_REMEDY)
        table[column] = as_text(table[column])


def is_ours(path: Path) -> bool:
    """Whether Lethe wrote a table: a Parquet file says so."""
    if path.suffix.lower() != ".parquet":
        return False
    from pyarrow.parquet import read_schema

    return METADATA in (read_schema(path).metadata or {})


def sample_names(column: pd.Series) -> pd.Series:
    """The names of answers as text, alike where they look alike: 1, 1.0 and "1" are one answer."""
    import pandas as pd

    if pd.api.types.is_integer_dtype(column):
        return column.astype(str)
    texts = column.map(str, na_action="ignore").map(seen, na_action="ignore").astype(object)
    return texts.str.replace(WHOLE, r"\1", regex=True)


def read_arrow(path: str | os.PathLike[str], prompts: Sequence[str] | None = None) -> pa.Table:
    """Return a Parquet table, or only the rows of ``prompts``; `BadFile` where it is damaged or of another version."""
    import pyarrow.parquet as pq

    path = Path(path)
    if path.is_dir():  # pyarrow would read the files below it as one table
        raise BadFile(path, "is a folder, expected a file")
    filters = None
    if prompts is not None:
        filters = [("prompt_id", "in", prompts)]
    try:
        arrow = pq.read_table(path, partitioning=None, filters=filters)
        arrow.validate(full=True)  # or pandas decodes a damaged text when somebody reads the cell
    except Exception as error:  # pyarrow raises several unrelated classes for a broken file
        raise broken_parquet(path, error) from None
    check_metadata(path, arrow.schema.metadata)
    return arrow


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a frame; an index, which pandas stores in the file and restores as an index, becomes a column (`with_index`)."""
    _check_cells(path)
    arrow = read_arrow(path)
    try:
        table = arrow.to_pandas()
    except Exception as error:  # as above
        raise broken_parquet(path, error) from None
    return with_index(table)


def with_index(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its index as columns: each level under its name, and one without a name where its labels are texts or
    repeat, since they may be the names of questions."""
    from pandas import RangeIndex

    if isinstance(table.index, RangeIndex) and table.index.name is None:
        return table
    plain = table.reset_index(drop=True)
    for place, name in enumerate(table.index.names):
        labels = table.index.get_level_values(place)
        if name is None:
            is_numeric = labels.dtype.kind in "iufb"
            if is_numeric and labels.is_unique:  # the numbers of rows
                continue
            name = f"{NAMELESS} {place}"
        if name not in plain.columns:
            plain.insert(place, name, labels)
    return plain


def check_width(path: Path, columns: int) -> None:
    """Raise `BadFile` for a table of more than `MOST_COLUMNS` columns."""
    if columns > MOST_COLUMNS:
        problem = f"has {columns:,} columns; a table must have at most {MOST_COLUMNS:,}"
        raise BadFile(path, problem, "Keep the columns that Lethe reads, and write the file again.")


def _check_cells(path: Path) -> None:
    """Refuse a Parquet file of more columns or cells than a table has, before it expands."""
    import pyarrow.parquet as pq

    try:
        stated = pq.read_metadata(path)
    except Exception as error:  # pyarrow raises several unrelated classes for a broken file
        raise broken_parquet(path, error) from None
    check_width(path, stated.num_columns)
    cells = stated.num_rows * stated.num_columns
    if cells > MOST_CELLS:
        problem = f"has {stated.num_rows:,} rows, {cells:,} cells; a table must have at most {MOST_CELLS:,} cells"
        raise BadFile(path, problem, "Split the table, or keep the columns that Lethe reads.")


def broken_parquet(path: Path, error: Exception) -> BadFile:
    """What is wrong with a file that pyarrow cannot read, in words of its own: its messages speak of offsets and buffers."""
    if isinstance(error, OSError) and error.strerror:
        return BadFile(path, f"cannot be read as Parquet ({error.strerror})")
    with path.open("rb") as stream:
        first = stream.read(len(MAGIC))
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - len(MAGIC)))
        last = stream.read()
    if not size:
        return BadFile(path, "cannot be read as Parquet (the file is empty)", AGAIN)
    if first != MAGIC:
        problem = f"it begins with {first!r}; a Parquet file, with {MAGIC!r}"
        return BadFile(path, f"cannot be read as Parquet ({problem})")
    if last != MAGIC:
        return BadFile(
            path, "cannot be read as Parquet (its end is missing: the file was cut off)", AGAIN
        )
    return BadFile(path, "cannot be read as Parquet (the file is damaged inside)", AGAIN)


def looks_like_a_number(name: object) -> bool:
    """Whether a text is a number in every language: only Python reads 1_0 as ten."""
    try:
        float(str(name))
    except ValueError:
        return False
    return "_" not in str(name)


def check_names(path: Path, columns: Sequence[str], legal: Sequence[str]) -> None:
    """Refuse a column that differs from a legal name, which the table lacks, only by case or punctuation."""
    name_of_letters = {_letters(name): name for name in legal if name not in columns}
    for column in columns:
        name = name_of_letters.get(_letters(column))
        if name and column not in legal:
            problem = f"its column {column!r} is not spelt {name!r}"
            raise BadFile(path, problem, "Rename the column.")


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def _read_csv(path: Path, required: Sequence[str], text: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    form = checked_form(path, required)
    try:
        with _lines_of(path, form) as lines:
            table = parsed(lines, form, text, skipped=form.line - 1)
    except UnicodeDecodeError:
        raise csv_form.broken_utf8(path) from None
    except ValueError as error:  # pandas raises several subclasses
        raise BadFile(path, f"cannot be read as CSV ({str(error).strip()})") from None
    if not isinstance(table.index, pd.RangeIndex):  # pandas took the first cells as row names
        problem = "its rows have more fields than its header"
        raise BadFile(path, problem, "Give every column a name.")
    return table


def parsed(lines: TextIO, form: CsvForm, text: Sequence[str], skipped: int = 0) -> pd.DataFrame:
    """The header and the rows of a table, after so many ``skipped`` lines; columns of ``text`` hold text."""
    import pandas as pd

    missing: dict[str, Sequence[str]] = {}
    for name in form.header:
        missing[name] = MISSING
        if name in text:
            missing[name] = ("",)
    return pd.read_csv(
        lines,
        sep=form.separator,
        dtype=dict.fromkeys(text, str),
        skiprows=skipped,
        skip_blank_lines=len(form.header) > 1,
        keep_default_na=False,
        na_values=missing,
    )


def checked_form(path: Path, required: Sequence[str] = ()) -> CsvForm:
    """The form of a CSV; `BadFile` where its header is too wide, or has a name twice."""
    form = _form(path, required)
    _check_header(path, form.header)
    return form


def _form(path: Path, required: Sequence[str] = ()) -> CsvForm:
    try:
        return csv_form.form_of(path, required)
    except UnicodeDecodeError:
        raise csv_form.broken_utf8(path) from None


def _lines_of(path: Path, form: CsvForm) -> TextIO:
    """The text of a table, read as it is parsed; of a single column without the blank lines at its end, which are no rows."""
    if len(form.header) > 1:
        return csv_form.text_of(path)
    return io.StringIO(read_text(path).rstrip())


def _check_header(path: Path, header: Sequence[str]) -> None:
    check_width(path, len(header))
    name = doubled(name for name in header if name)
    if name is not None:
        raise BadFile(path, f"two columns are called {name!r}", "Rename or remove one.")


def file_line(path: str | os.PathLike, row: int) -> int:
    """Return the line on which ``row`` (from 0) of the table begins; for a Parquet file, the row from 1."""
    suffix = suffix_of(Path(path))
    if suffix in csv_form.SUFFIXES:
        # A row that only pandas counts, such as quoted blanks, is among the last: it has the last line.
        return csv_form.line_of(Path(path), row)
    if suffix in (".jsonl", ".json"):
        return read_records(path)[row][0]
    return row + 1


def form_name(path: Path) -> str:
    """What a person calls a table of a file: "semicolon table", "Parquet table", "JSON records"."""
    suffix = suffix_of(path)
    if suffix in csv_form.SUFFIXES:
        return _form(path).name
    return "Parquet table" if suffix == ".parquet" else "JSON records"


def numeric_column(
    table: pd.DataFrame, column: str, path: str | os.PathLike, words: bool = False
) -> np.ndarray:
    """Return the numbers of a column (rows,), NaN where a cell is missing; `BadRow` names the first that is no number.

    With ``words`` yes is 1 and no is 0.
    """
    return number_column(table, column, path, words).values


def number_column(
    table: pd.DataFrame, column: str, path: str | os.PathLike, words: bool = True
) -> NumberColumn:
    """As `numeric_column`, with the form in which the numbers are written (`lethe.io.cells`)."""
    try:
        return numbers_of(table[column], words)
    except NoNumber as error:
        problem = f"column {column}: got {shortened(error.value)}, {error.reason}"
        raise BadRow(path, file_line(path, error.place), problem) from None
