"""Text, JSON and JSON lines, read with errors that name the file and the line; the schema version of artifacts.

A JSON object carries the version under ``schema``, a Parquet file in its metadata under ``lethe_schema``. A folder whose
files cannot carry one (JSON lines, and the JSON lists that DVC plots) has a JSON object or a Parquet file beside them. Kept
answers, verdicts and levels carry none, because the key of each contains the source of the code that reads them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lethe.errors import BadFile, BadRow, OtherSchema
from lethe.io.atomic import SCHEMA_VERSION, atomic_file, write_text

T = TypeVar("T")
KEY, METADATA = "schema", b"lethe_schema"
FIRST = 1  # the version of an artifact that names none


def write_json(path: str | os.PathLike, value: object) -> None:
    """Write strict JSON (infinities and NaN become null) with sorted, stable formatting."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        json.dump(plain(value), file, indent=1, ensure_ascii=False, allow_nan=False)  # piece by piece
        file.write("\n")


def read_json(path: str | os.PathLike) -> Any:
    """Read a JSON file; raise `BadFile` or `BadRow` for a broken file."""
    return _parsed(path, 1, read_text(path))


def write_jsonl(path: str | os.PathLike, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as JSON lines, one object per line."""
    lines = [json.dumps(plain(row), ensure_ascii=False, allow_nan=False) for row in rows]
    write_text(path, "\n".join(lines) + ("\n" if lines else ""))


def restored(kind: type[T], values: object) -> T:
    """An object of a dataclass from the plain values that `dataclasses.asdict` made of it; other keys are ignored."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(values)


def read_jsonl(path: str | os.PathLike) -> list[tuple[int, dict]]:
    """Read JSON lines as (line number from 1, object); blank lines are skipped."""
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        row = _parsed(path, number, line, object_pairs_hook=without_doubles)
        if not isinstance(row, dict):
            raise BadRow(path, number, f"got {type(row).__name__}, expected a JSON object")
        rows.append((number, row))
    return rows


def _parsed(path: str | os.PathLike, line: int, text: str, **how: Any) -> Any:
    """Parse ``text``, which begins on ``line``, as JSON; raise `BadRow` for invalid JSON."""
    try:
        value = json.loads(text, **how)
        # Possibly a lone surrogate, which neither a UTF-8 file nor a terminal can take.
        if r"\ud" in text or r"\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        raise BadRow(path, line + error.lineno - 1, f"not valid JSON ({error.msg})") from None
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise BadRow(path, line, f"lone surrogate {half} is not valid text", "Write the full character.") from None
    except RecursionError:
        raise BadRow(path, line, "nested too deeply") from None
    except ValueError as error:  # a duplicate key, or an integer of thousands of digits
        raise BadRow(path, line, str(error).split(";")[0]) from None


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; raises `ValueError` where a key appears twice, whose later value would hide the earlier."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(f"duplicate key {str(doubled(key for key, _ in pairs))[:60]!r}")
    return members


def doubled(names: Iterable[Any]) -> Any:
    """Return the first name that appears twice, or None."""
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def read_text(path: str | os.PathLike) -> str:
    """Read a UTF-8 file, with or without a byte-order mark."""
    path = Path(path)
    if not path.is_file():
        raise BadFile(path, "is a folder, expected a file" if path.is_dir() else "no such file", "Check the path.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise BadRow(path, line, "not valid UTF-8", "Convert the file to UTF-8.") from error


def plain(value: object) -> object:
    """Return what strict JSON can hold: objects for dataclasses, plain values for NumPy's, null for infinities and NaN."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def flat_numbers(values: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """The finite numbers of a JSON object; those of nested objects have dotted keys."""
    numbers: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            numbers |= flat_numbers(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            numbers[prefix + key] = float(value)
    return numbers


def check_version(path: str | os.PathLike, found: object) -> None:
    """Raise `OtherSchema` unless ``found`` is the version that this release reads."""
    if type(found) is not int or found != SCHEMA_VERSION:
        raise OtherSchema(path, found, SCHEMA_VERSION)


def check_metadata(path: str | os.PathLike, metadata: dict[bytes, bytes] | None) -> None:
    """Check the version in the metadata of a Parquet file; a table of a user has none."""
    version = (metadata or {}).get(METADATA)
    if version is not None:
        check_version(
            path, int(version) if version.isdigit() and len(version) < 10 else version.decode("utf-8", "replace")
        )


def read_artifact(path: str | os.PathLike) -> Any:
    """Read a JSON artifact; raise `OtherSchema` where another release of Lethe wrote an object of another version."""
    value = read_json(path)
    if isinstance(value, dict):
        check_version(path, value.get(KEY, FIRST))
    return value
