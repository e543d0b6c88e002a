"""The user's own files: ``forget.jsonl`` and ``retain.jsonl``, optionally files of other splits."""

from pathlib import Path

from lethe.config.schema import Data
from lethe.data.rows import read_rows
from lethe.io.artifacts import Row

OPTIONAL = ("world", "real_authors", "heldout")


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The splits ``forget`` and ``retain``, and each of `OPTIONAL` that has a file; raises `BadFile` or `BadRow`."""
    splits = {
        name: read_rows(source / f"{name}.jsonl", f"{name}-") for name in ("forget", "retain")
    }
    for name in OPTIONAL:
        if (source / f"{name}.jsonl").exists():
            splits[name] = read_rows(source / f"{name}.jsonl", f"{name}-")
    return splits
