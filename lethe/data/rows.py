"""The dataset that params.yaml names, the contract of its rows, and rows of files or hub repositories."""

import csv
import io
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
from lethe.io.artifacts import Aim, Row
from lethe.io.files import doubled, read_json, read_jsonl, read_text
from lethe.io.ids import REMEDY, alike
from lethe.io.tables import LARGEST_CELL
from lethe.registry import DATASETS

NO_HUB = "Check the name and the network, or set {key} to null and data.source to a folder."


def _not_blank(text: str) -> str:
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
    followups: list[Text] | None = (
        None  # asked one after another, each after the answer to the one before
    )


TEXTS = ("id", "question", "answer")
KEYS = tuple(_Row.model_fields)


def read_rows(path: Path, prefix: str = "") -> list[Row]:
    """Read one split of JSON lines; a row without an id gets ``prefix`` and the number of its line."""
    if path.suffix.lower() in (".csv", ".tsv", ".parquet"):
        keys = ", ".join(f'"{key}": ...' for key in TEXTS)
        remedy = f"Write one JSON object per question on a line of its own: {{{keys}}}."
        raise BadFile(path, f"is a {path.suffix} file, expected JSON lines", remedy)
    return checked_rows(
        ((number, with_id(row, number, prefix)) for number, row in read_jsonl(path)), path
    )


def with_id(row: dict, number: int, prefix: str = "") -> dict:
    """The row with a text as its id: its own id as text, or a prefix and the row's number."""
    own = row.get("id")
    if own is None:
        return {
            "id": f"{prefix}{number}",
            **{key: value for key, value in row.items() if key != "id"},
        }
    return {**row, "id": str(own)} if isinstance(own, int) and not isinstance(own, bool) else row


def checked_rows(numbered: Iterable[tuple[int, Mapping[str, object]]], path: Path) -> list[Row]:
    """Return the rows of pairs of line and row; one warning names the keys that only a scorer of the user's may read."""
    rows: list[Row] = []
    seen: dict[str, int] = {}
    look: dict[str, str] = {}  # the first id that looks so
    unknown: dict[str, int] = {}  # the first line of each
    for number, row in numbered:
        problem = misspelt(row) or row_problem(row)
        if problem:
            raise BadRow(path, number, problem)
        whole = cast(Row, row)
        if whole["id"] in seen:
            problem = f"id {whole['id']!r} already appears on line {seen[whole['id']]}"
            raise BadRow(path, number, problem, "Make it unique.")
        if (
            found := alike((look.setdefault(whole["id"].strip(), whole["id"]), whole["id"]))
        ) is not None:
            raise BadRow(path, number, found.problem("id"), REMEDY)
        seen[whole["id"]] = number
        rows.append(whole)
        for key in row.keys() - set(KEYS):
            unknown.setdefault(key, number)
    if unknown:
        named = ", ".join(
            f"{shortened(key)} (line {line})" for key, line in sorted(unknown.items())
        )
        print(
            visible(f"{path}: keys that only a scorer of your own reads: {named}."), file=sys.stderr
        )
    return rows


def misspelt(row: Mapping[str, object]) -> str | None:
    for key in row.keys() - set(KEYS):
        plain = str(key).casefold().strip().replace("-", "_").replace(" ", "_")
        absent = [legal for legal in KEYS if legal not in row]
        if meant := plain if plain in KEYS else nearest(plain, absent, 0.85):
            return f"unknown key {shortened(key)}; did you mean {meant!r}?"
    return None


def row_problem(row: Mapping[str, object]) -> str | None:
    try:
        _Row.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        if first["type"] == "missing":
            return f"no key {key!r}; a row must have {', '.join(TEXTS)}"
        listed = bool(first["loc"][1:]) or first["type"] == "list_type"
        legal = (
            "non-empty text" if key in TEXTS else "a list of non-empty texts" if listed else "text"
        )
        return f"key {key}: got {shortened(row[key])}; must be {legal}"
    return None


def check_splits(splits: dict[str, list[Row]]) -> dict[str, list[Row]]:
    for name in ("forget", "retain"):
        if (name in splits or name == "forget") and not splits.get(name):
            raise BadInput(f"The dataset's {name} set is empty; it must have at least one row.")
    owner: dict[str, str] = {}
    for name, rows in splits.items():
        for row in rows:
            if row["id"] in owner:
                splits_of_id = f"{owner[row['id']]} and {name}"
                raise BadInput(
                    f"The id {row['id']!r} appears in the splits {splits_of_id}; make it unique."
                )
            owner[row["id"]] = name
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
        if self.place.startswith("line "):
            return BadRow(self.path, int(self.place.removeprefix("line ")), problem)
        return BadFile(self.path, f"{self.place}: {problem}")


def csv_entries(path: Path, columns: Sequence[str]) -> list[Entry]:
    csv.field_size_limit(LARGEST_CELL)
    reader = csv.reader(
        io.StringIO(read_text(path), newline=""), skipinitialspace=True, strict=True
    )
    header: list[str] | None = None
    entries, begins = [], 1
    try:
        for cells in reader:
            line, begins = begins, reader.line_num + 1
            if not any(map(str.strip, cells)):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                check_columns(path, columns, header)
                if (twice := doubled(filter(None, header))) is not None:
                    raise BadFile(
                        path, f"two columns are called {twice!r}", "Rename or remove one."
                    )
                continue
            if len(cells) != len(header):
                named = (
                    f"column {header[len(cells)]!r} has no cell"
                    if len(cells) < len(header)
                    else "too many cells"
                )
                problem = f"{named}: got {len(cells)} cells, the header has {len(header)} columns"
                raise BadRow(
                    path, line, problem, "Put a cell that contains a comma into double quotes."
                )
            entries.append(Entry(f"line {line}", dict(zip(header, cells, strict=True)), str(path)))
    except csv.Error as error:
        raise BadRow(path, begins, f"not valid CSV ({error})") from None
    if header is None:
        raise BadFile(path, "is empty, expected a header and rows")
    return entries


def json_entries(path: Path) -> list[Entry]:
    whole = read_json(path)
    if not isinstance(whole, list):
        raise BadFile(path, f"holds {type(whole).__name__}, expected a list of objects")
    return _objects(whole, str(path))


def hub_entries(repository: str, part: str | None, split: str, key: str) -> list[Entry]:
    import datasets

    place = "/".join(filter(None, (repository, part, split)))
    try:
        rows = datasets.load_dataset(repository, part, split=split).to_list()
    except Exception as error:  # the library and the network raise many unrelated exceptions
        problem = f"its part {part!r} cannot be read from the hub ({reason_of(error)})"
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
        rows.append(cast(Row, row))
    return rows


def first_of(folder: Path, *names: str) -> Path:
    """The first of the named files that exists below ``folder``; raises `BadFile`, which lists them all."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    legal = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    raise BadFile(
        folder, f"holds no file {legal}", "Put it there, or name another folder in data.source."
    )


def load_splits(data: Data, root: Path = Path()) -> dict[str, list[Row]]:
    return check_splits(DATASETS[data.kind].load(data, root / data.source))


def aim(kind: str) -> Aim:
    """Return what a model should do about the forget set of a kind of dataset: ``AIM`` of its module, else forget."""
    return getattr(DATASETS[kind], "AIM", "forget")
