"""The dataset that params.yaml names, the contract of its rows, and rows of files or hub repositories."""

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from lethe.config.schema import Data
from lethe.errors import (
    BadFile,
    BadInput,
    BadRow,
    check_columns,
    nearest,
    reason_of,
    shortened,
    visible,
)
from lethe.io import csv_form
from lethe.io.artifacts import Aim, Row
from lethe.io.csv_form import LARGEST_CELL
from lethe.io.files import check_file, doubled, read_json, read_records, read_text
from lethe.io.ids import REMEDY, alike
from lethe.io.packed import suffix_of
from lethe.io.unseen import seen
from lethe.registry import DATASETS

NO_HUB = "Check the name and the network, or set {key} to null and data.source to a folder."


def _not_blank(text: str) -> str:
    """The text; raises ``ValueError`` where it has no visible character."""
    if not text.strip():
        raise ValueError("text that is not empty")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]


class _Row(BaseModel):
    """The contract; a row may have further keys of the user."""

    model_config = ConfigDict(strict=True, extra="allow")
    id: Text
    question: Text
    answer: Text
    paraphrased_answer: str | None = None
    paraphrased_question: str | None = None
    author: str | None = None
    context: str | None = None
    keywords: list[Text] | None = None
    perturbed_answer: list[Text] | None = None
    # asked one after another, each after the answer to the one before
    followups: list[Text] | None = None
    # whole answers, of which the true one was drawn (docs/twins.md)
    twins: list[Text] | None = None
    # rows of one secret share its draw; by default each row has its own
    secret: Text | None = None


TEXTS = ("id", "question", "answer")
LISTS = ("keywords", "perturbed_answer", "followups", "twins")  # keys whose value is a list
KEYS = tuple(_Row.model_fields)


def dataset_rows(
    rows: str | os.PathLike[str] | Sequence[Mapping[str, object]], name: str, prefix: str = ""
) -> list[Row]:
    """The rows of a file, a list or a DataFrame, checked; those in memory are called ``name`` in errors.

    A row without an id gets ``prefix`` and its number from 1.
    """
    if isinstance(rows, (str, os.PathLike)):
        return read_rows(Path(rows), prefix)
    records = rows.to_dict("records") if hasattr(rows, "to_dict") else rows
    numbered = []
    for number, row in enumerate(records, start=1):
        numbered.append((number, with_id(dict(row), number, prefix)))
    return checked_rows(numbered, Path(name))


def read_rows(path: Path, prefix: str = "") -> list[Row]:
    """Read one split: JSON lines, a JSON list of objects, or a table (.csv, .tsv), also packed (.gz, .zst).

    A row without an id gets ``prefix`` and the number of its line. A key with a list has in a table a JSON list
    or texts between bars: ``Turin|Torino``.
    """
    suffix = suffix_of(path)
    if suffix == ".parquet":
        keys = ", ".join(f'"{key}": ...' for key in TEXTS)
        remedy = f"Write one JSON object per question on a line of its own: {{{keys}}}."
        raise BadFile(path, f"is a {suffix} file, expected JSON lines or CSV", remedy)
    numbered = _table_rows(path) if suffix in csv_form.SUFFIXES else read_records(path)
    with_ids = [(line, with_id(row, line, prefix)) for line, row in numbered]
    return checked_rows(with_ids, path)


def _table_rows(path: Path) -> list[tuple[int, dict]]:
    """The rows of a table as (line, row), without the keys of empty cells."""
    check_file(path)
    rows = []
    try:
        form, lines = csv_form.rows_of(path)
        check_columns(path, ("question", "answer"), form.header)
        name = doubled(name for name in form.header if name)
        if name is not None:
            raise BadFile(path, f"two columns are called {name!r}", "Rename or remove one.")
        next(lines)
        for line, cells in lines:
            if len(cells) != len(form.header):
                raise _other_length(cells, form.header, path, line)
            row: dict[str, object] = {}
            for key, cell in zip(form.header, cells, strict=True):
                if not cell.strip():
                    continue
                if key in LISTS:
                    row[key] = _texts(path, line, key, cell)
                else:
                    row[key] = cell
            rows.append((line, row))
    except UnicodeDecodeError:
        raise csv_form.broken_utf8(path) from None
    except csv.Error as error:
        raise BadFile(path, f"cannot be read as CSV ({error})") from None
    return rows


def _texts(path: Path, line: int, key: str, cell: str) -> list[str]:
    """The texts of a cell with a list; a cell in which a comma or a semicolon may separate them is a question to the user."""
    text = cell.strip()
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            problem = f"column {key}: got {shortened(cell)}; not a JSON list"
            raise BadRow(path, line, problem, "Write texts between bars: Turin|Torino.") from None
    may_be_several = "," in text or ";" in text
    if "|" not in text and may_be_several:
        problem = f"column {key}: got {shortened(cell)}, which may be one text or several"
        remedy = f"Write several texts between bars (Turin|Torino), or one as a list: {json.dumps([text])}."
        raise BadRow(path, line, problem, remedy)
    return [part.strip() for part in text.split("|")]


def with_id(row: dict, number: int, prefix: str = "") -> dict:
    """Return the row with a text as its id: a number as text, or ``prefix`` and the row's number where it has none."""
    name = row.get("id")
    if name is None:
        others = {key: value for key, value in row.items() if key != "id"}
        return {"id": f"{prefix}{number}", **others}
    if isinstance(name, int) and not isinstance(name, bool):
        return {**row, "id": str(name)}
    return row


def checked_rows(numbered: Iterable[tuple[int, Mapping[str, object]]], path: Path) -> list[Row]:
    """Return the rows of pairs of line and row, in their order.

    One warning on standard error names the keys that only a scorer of the user's may read.

    Raises
    ------
    BadRow
        A key is misspelt or missing, a value has the wrong type, or an id appears twice or looks like another one.
    """
    rows: list[Row] = []
    line_of_id: dict[str, int] = {}
    first_id_by_look: dict[str, str] = {}
    first_line_of_unknown: dict[str, int] = {}
    for line, row in numbered:
        problem = misspelt(row) or row_problem(row)
        if problem:
            raise BadRow(path, line, problem)
        checked = cast(Row, row)
        name = checked["id"]
        if name in line_of_id:
            problem = f"id {name!r} already appears on line {line_of_id[name]}"
            raise BadRow(path, line, problem, "Make it unique.")
        first_that_looks_so = first_id_by_look.setdefault(seen(name), name)
        likeness = alike((first_that_looks_so, name))
        if likeness is not None:
            raise BadRow(path, line, likeness.problem("id"), REMEDY)

        line_of_id[name] = line
        rows.append(checked)
        for key in row.keys() - set(KEYS):
            first_line_of_unknown.setdefault(key, line)

    if first_line_of_unknown:
        _warn_of_unknown_keys(path, first_line_of_unknown)
    return rows


def _warn_of_unknown_keys(path: Path, line_of_key: Mapping[str, int]) -> None:
    """One line on standard error."""
    keys = [f"{shortened(key)} (line {line})" for key, line in sorted(line_of_key.items())]
    warning = f"{path}: keys that only a scorer of your own reads: {', '.join(keys)}."
    print(visible(warning), file=sys.stderr)


def misspelt(row: Mapping[str, object]) -> str | None:
    """Return the problem of a key that differs from one of the contract by case or spelling, or None."""
    absent = [key for key in KEYS if key not in row]
    for key in row.keys() - set(KEYS):
        plain = str(key).casefold().strip().replace("-", "_").replace(" ", "_")
        meant: str | None = plain
        if plain not in KEYS:
            meant = nearest(plain, absent, 0.85)
        if meant:
            return f"unknown key {shortened(key)}; did you mean {meant!r}?"
    return None


def row_problem(row: Mapping[str, object]) -> str | None:
    """Return what the contract refuses about the row, naming the key and the legal value, or None."""
    try:
        _Row.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        if first["type"] == "missing":
            return f"no key {key!r}; a row must have {', '.join(TEXTS)}"
        is_list = bool(first["loc"][1:]) or first["type"] == "list_type"
        if key in TEXTS:
            legal = "non-empty text"
        elif is_list:
            legal = "a list of non-empty texts"
        else:
            legal = "text"
        return f"key {key}: got {shortened(row[key])}; must be {legal}"
    return None


def check_splits(splits: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Return the splits; raises `BadInput` for an empty forget or retain set and for an id in two places."""
    for split in ("forget", "retain"):
        must_exist = split == "forget" or split in splits
        if must_exist and not splits.get(split):
            raise BadInput(f"The dataset's {split} set is empty; it must have at least one row.")
    split_of_id: dict[str, str] = {}
    for split, rows in splits.items():
        for row in rows:
            name = row["id"]
            if name in split_of_id:
                both = f"{split_of_id[name]} and {split}"
                raise BadInput(f"The id {name!r} appears in the splits {both}; make it unique.")
            split_of_id[name] = split
    return splits


@dataclass(frozen=True)
class Entry:
    """One row of a source: its cells by column, and its location in words, such as "line 3"."""

    place: str
    cells: Mapping[str, object]
    path: str

    def text(self, column: str, *, optional: bool = False) -> str:
        """Return the text of a cell without blanks at its ends; a missing, null or blank ``optional`` cell gives ""."""
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
            columns = ", ".join(map(str, self.cells)) or "(none)"
            raise self.broken(f"no column {column!r}; its columns are {columns}")
        raise self.broken(f"column {column!r}: got {shortened(cell)}; must be non-empty text")

    def broken(self, problem: str) -> BadInput:
        """The error about this row."""
        if self.place.startswith("line "):
            return BadRow(self.path, int(self.place.removeprefix("line ")), problem)
        return BadFile(self.path, f"{self.place}: {problem}")


def csv_entries(path: Path, columns: Sequence[str]) -> list[Entry]:
    """Return the rows of a CSV file with a header that has at least ``columns``; blank lines are skipped.

    Raises
    ------
    BadFile
        The file is empty, lacks a column or has one twice.
    BadRow
        A row has another number of cells than the header, or is no CSV.
    """
    csv.field_size_limit(LARGEST_CELL)
    text = io.StringIO(read_text(path), newline="")
    reader = csv.reader(text, skipinitialspace=True, strict=True)
    header: list[str] | None = None
    entries: list[Entry] = []
    next_line = 1
    try:
        for cells in reader:
            line = next_line
            next_line = reader.line_num + 1
            if not any(map(str.strip, cells)):
                continue
            if header is None:
                header = _header(cells, columns, path)
                continue
            if len(cells) != len(header):
                raise _other_length(cells, header, path, line)
            cell_of_column = dict(zip(header, cells, strict=True))
            entries.append(Entry(f"line {line}", cell_of_column, str(path)))
    except csv.Error as error:
        raise BadRow(path, next_line, f"not valid CSV ({error})") from None
    if header is None:
        raise BadFile(path, "is empty, expected a header and rows")
    return entries


def _header(cells: Sequence[str], columns: Sequence[str], path: Path) -> list[str]:
    """The names of the columns; raises a sentence where a needed column is absent, or a name stands twice."""
    header = [cell.strip() for cell in cells]
    check_columns(path, columns, header)
    twice = doubled(filter(None, header))
    if twice is not None:
        raise BadFile(path, f"two columns are called {twice!r}", "Rename or remove one.")
    return header


def _other_length(cells: Sequence[str], header: Sequence[str], path: Path, line: int) -> BadRow:
    """The error about a line with another number of cells than the header."""
    if len(cells) < len(header):
        difference = f"column {header[len(cells)]!r} has no cell"
    else:
        difference = "too many cells"
    problem = f"{difference}: got {len(cells)} cells, the header has {len(header)} columns"
    return BadRow(path, line, problem, "Put a cell that contains a comma into double quotes.")


def json_entries(path: Path) -> list[Entry]:
    """Return the objects of a JSON file that holds a list; raises `BadFile` for anything else."""
    content = read_json(path)
    if not isinstance(content, list):
        raise BadFile(path, f"holds {type(content).__name__}, expected a list of objects")
    return _objects(content, str(path))


def hub_entries(repository: str, part: str | None, split: str, key: str) -> list[Entry]:
    """Return the rows of a dataset of the hub; ``key`` is the key of params.yaml that an error names."""
    import datasets

    place = "/".join(filter(None, (repository, part, split)))
    try:
        rows = datasets.load_dataset(repository, part, split=split).to_list()
    except Exception as error:  # the library and the network raise many unrelated exceptions
        problem = f"its part {part!r} cannot be read from the hub ({reason_of(error)})"
        raise BadFile(repository, problem, NO_HUB.format(key=key)) from error
    return _objects(rows, place)


def _objects(rows: Iterable[object], path: str) -> list[Entry]:
    """The rows of a source as entries; raises `BadFile` for one that is no object."""
    entries = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise BadFile(path, f"row {number}: got {type(row).__name__}, expected an object")
        entries.append(Entry(f"row {number}", row, path))
    return entries


def rows_of(pairs: Iterable[tuple[Entry, Mapping[str, object]]]) -> list[Row]:
    """The rows that a kind made from its entries; raises the error about the entry for a broken row or a duplicate id."""
    rows: list[Row] = []
    place_of_id: dict[object, str] = {}
    for entry, row in pairs:
        problem = row_problem(row)
        if problem:
            raise entry.broken(problem)
        name = row["id"]
        if name in place_of_id:
            raise entry.broken(f"id {name!r} already appears in {place_of_id[name]}")
        place_of_id[name] = entry.place
        rows.append(cast(Row, row))
    return rows


def first_of(folder: Path, *names: str) -> Path:
    """The first of the named files that exists below ``folder``; raises `BadFile`, which lists them all."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    *others, last = names
    legal = last
    if others:
        legal = f"{', '.join(others)} or {last}"
    remedy = "Put it there, or name another folder in data.source."
    raise BadFile(folder, f"holds no file {legal}", remedy)


def load_splits(data: Data, root: Path = Path()) -> dict[str, list[Row]]:
    """Return the rows of each split of the dataset that the settings name; ``data.source`` is below ``root``."""
    return check_splits(DATASETS[data.kind].load(data, root / data.source))


def with_twins(data: Data, splits: dict[str, list[Row]], k: int) -> dict[str, list[Row]]:
    """Return the splits with ``k`` candidates of each secret of the forget set, where the kind generates secrets.

    Rows of other kinds stay as they are; those of the user may have twins.
    """
    if not generates_secrets(data.kind):
        return splits
    twinned: dict[str, list[Row]] = DATASETS[data.kind].add_twins(data, splits, k)
    return twinned


def generates_secrets(kind: str) -> bool:
    """Whether a kind of dataset draws its secrets itself, and so can draw twins alike."""
    return hasattr(DATASETS[kind], "add_twins")


def aim(kind: str) -> Aim:
    """Return what a model should do about the forget set of a kind of dataset: ``AIM`` of its module, else forget."""
    return getattr(DATASETS[kind], "AIM", "forget")
