"""Finished work in files that may be lost: each carries a digest of its content, and a damaged file counts as missing.

A flipped bit in a file of finished answers would otherwise become part of a result, and half a file would stop the rerun.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from lethe.io.atomic import write_text
from lethe.io.cache import digest
from lethe.io.json_files import plain


def keep(path: Path, value: object) -> None:
    """Write ``value`` as strict JSON below a line with its digest, atomically."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
    write_text(path, f"{_digest(text.encode())}\n{text}\n")


def kept(path: Path) -> Any:
    """Return the value that `keep` wrote; None where the file is missing, unreadable or damaged."""
    try:
        first, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        print(f"{path} cannot be read ({error.strerror}) and counts as missing", file=sys.stderr, flush=True)
        return None
    content = content.removesuffix(b"\n")
    if first != _digest(content).encode():
        print(f"{path} is damaged and counts as missing", file=sys.stderr, flush=True)
        return None
    return json.loads(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Kept(MutableMapping[Any, Any]):
    """JSON values by name, in files below ``scratch`` whose names hash ``key`` and the name.

    ``key`` must come from `lethe.io.cache.cache_key`. Only names that this object has seen are iterated or cleared. A
    damaged file counts as missing.
    """

    def __init__(self, scratch: Path, key: str):
        self.scratch, self.key = scratch, key
        self.places: dict[Any, Path] = {}

    def place(self, name: Any) -> Path:
        if name not in self.places:
            key = digest(self.key, name)
            self.places[name] = self.scratch / key[:2] / f"{key}.json"
        return self.places[name]

    def __getitem__(self, name: Any) -> Any:
        value = kept(self.place(name))
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: Any, value: Any) -> None:
        keep(self.place(name), value)

    def __delitem__(self, name: Any) -> None:
        self.place(name).unlink()

    def __iter__(self) -> Iterator[Any]:
        return (name for name, place in self.places.items() if place.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        """Remove every file that this object read or wrote; call it after the result is written."""
        for place in self.places.values():
            place.unlink(missing_ok=True)
