"""The schema version of an artifact, which every reader of artifacts checks.

A JSON object carries the version under ``schema``, a Parquet file in its metadata under ``lethe_schema``. A folder whose
files cannot carry one (JSON lines, and the JSON lists that DVC plots) has a JSON object or a Parquet file beside them. Kept
answers, verdicts and levels carry none, because the key of each contains the source of the code that reads them.
"""

from __future__ import annotations

import os
from typing import Any

from lethe.errors import OtherSchema
from lethe.io.atomic import SCHEMA_VERSION
from lethe.io.json_files import read_json

KEY, METADATA = "schema", b"lethe_schema"
FIRST = 1  # the version of an artifact that names none


def check_version(path: str | os.PathLike, found: object) -> None:
    """Raise `OtherSchema` unless ``found`` is the version that this release reads."""
    if type(found) is not int or found != SCHEMA_VERSION:
        raise OtherSchema(path, found, SCHEMA_VERSION)


def check_metadata(path: str | os.PathLike, metadata: dict[bytes, bytes] | None) -> None:
    """Check the version in the metadata of a Parquet file; a table of a user has none."""
    told = (metadata or {}).get(METADATA)
    if told is not None:
        check_version(path, int(told) if told.isdigit() and len(told) < 10 else told.decode("utf-8", "replace"))


def read_artifact(path: str | os.PathLike) -> Any:
    """Read a JSON artifact; raise `OtherSchema` where another release of Lethe wrote an object of another version.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "about.json")
    >>> _ = path.write_text('{"schema": 1, "kind": "authors"}')
    >>> read_artifact(path)["kind"]
    'authors'
    """
    value = read_json(path)
    if isinstance(value, dict):
        check_version(path, value.get(KEY, FIRST))
    return value
