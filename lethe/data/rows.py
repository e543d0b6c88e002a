"""The contract of a dataset row, checked with errors that name file and line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from lethe.errors import BadFile, BadInput, BadRow, shortened, visible
from lethe.io.artifacts import Row
from lethe.io.json_files import read_jsonl


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("blank")
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
    followups: list[Text] | None = None  # asked one after another, each after the answer to the one before


TEXTS, LISTS = ("id", "question", "answer"), ("keywords", "perturbed_answer", "followups")
KEYS = tuple(_Row.model_fields)


def read_rows(path: Path, prefix: str = "") -> list[Row]:
    """Read one split of JSON lines; raises `BadRow` with file and line for a row that breaks the contract.

    An id that is a whole number becomes text, and a row without an id gets ``prefix`` and the number
    of its line.
    """
    if path.suffix.lower() in (".csv", ".tsv", ".parquet"):
        keys = ", ".join(f'"{key}": ...' for key in TEXTS)
        remedy = f"Write one JSON object per question on a line of its own: {{{keys}}}."
        raise BadFile(path, f"is a {path.suffix} file, expected JSON lines", remedy)
    return checked_rows(((number, with_id(row, number, prefix)) for number, row in read_jsonl(path)), path)


def with_id(row: dict, number: int, prefix: str = "") -> dict:
    """The row with a text as its id: its own id as text, or a prefix and the row's number."""
    own = row.get("id")
    if own is None:
        return {"id": f"{prefix}{number}", **{key: value for key, value in row.items() if key != "id"}}
    return {**row, "id": str(own)} if isinstance(own, int) and not isinstance(own, bool) else row


def checked_rows(numbered: Iterable[tuple[int, Mapping[str, object]]], path: Path) -> list[Row]:
    """Return the rows of ``numbered``, pairs of line and row; raises `BadRow` for a broken row or a duplicate id.

    One warning names the keys that Lethe does not read: a scorer of the user's own may read them.
    """
    rows: list[Row] = []
    seen: dict[str, int] = {}
    unknown: dict[str, int] = {}  # the first line of each
    for number, row in numbered:
        problem = misspelt(row) or row_problem(row)
        if problem:
            raise BadRow(path, number, problem)
        whole = cast(Row, row)
        if whole["id"] in seen:
            raise BadRow(
                path, number, f"id {whole['id']!r} already appears on line {seen[whole['id']]}", "Make it unique."
            )
        seen[whole["id"]] = number
        rows.append(whole)
        for key in row.keys() - set(KEYS):
            unknown.setdefault(key, number)
    if unknown:
        named = ", ".join(f"{shortened(key)} (line {line})" for key, line in sorted(unknown.items()))
        print(visible(f"{path}: keys that only a scorer of your own reads: {named}."), file=sys.stderr)
    return rows


def misspelt(row: Mapping[str, object]) -> str | None:
    """The problem of a key that is a known key but for its case or a letter or two."""
    for key in row.keys() - set(KEYS):
        plain = str(key).casefold().strip().replace("-", "_").replace(" ", "_")
        absent = [known for known in KEYS if known not in row]
        near = [plain] if plain in KEYS else get_close_matches(plain, absent, 1, cutoff=0.85)
        if near:
            return f"unknown key {shortened(key)}; did you mean {near[0]!r}?"
    return None


def row_problem(row: Mapping[str, object]) -> str | None:
    """The first problem of a row, or None."""
    try:
        _Row.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        if first["type"] == "missing":
            return f"no key {key!r}; a row must have {', '.join(TEXTS)}"
        listed = bool(first["loc"][1:]) or first["type"] == "list_type"
        legal = "non-empty text" if key in TEXTS else "a list of non-empty texts" if listed else "text"
        return f"key {key}: got {shortened(row[key])}; must be {legal}"
    return None


def check_splits(splits: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Return the splits; raises `BadInput` for an empty forget or retain set, or an id in two splits.

    A dataset without the split ``retain`` can be evaluated, but no model can be trained on it.
    """
    for name in ("forget", "retain"):
        if (name in splits or name == "forget") and not splits.get(name):
            raise BadInput(f"The dataset's {name} set is empty; it must have at least one row.")
    owner: dict[str, str] = {}
    for name, rows in splits.items():
        for row in rows:
            if row["id"] in owner:
                raise BadInput(
                    f"The id {row['id']!r} appears in the splits {owner[row['id']]} and {name}; make it unique."
                )
            owner[row["id"]] = name
    return splits
