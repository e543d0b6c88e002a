"""Results kept between runs, in files with a digest of their content: a damaged file counts as missing.

The name of a file hashes the identity of the result (`lethe.identity.cache_key`), so that no kept result is stale.
"""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import TypeVar

from lethe.errors import LetheError
from lethe.identity import cache_key, digest, versions
from lethe.io.files import Json, plain, write_text

K = TypeVar("K")
V = TypeVar("V")


def keep(path: Path, value: object) -> None:
    """Write ``value`` as strict JSON below a line with its digest, atomically."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False)
    write_text(path, f"{_digest(text.encode())}\n{text}\n")


def recall(path: Path) -> Json:
    """Return the value that `keep` wrote; None where the file is missing, unreadable or damaged."""
    try:
        first, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        print(
            f"{path} cannot be read ({error.strerror}) and counts as missing",
            file=sys.stderr,
            flush=True,
        )
        return None
    content = content.removesuffix(b"\n")
    if first != _digest(content).encode():
        print(f"{path} is damaged and counts as missing", file=sys.stderr, flush=True)
        return None
    return json.loads(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Store(MutableMapping[K, V]):
    """JSON values by name, in files below ``scratch`` whose names hash ``key``, which is a `cache_key`, and the name."""

    def __init__(self, scratch: Path, key: str):
        self.scratch = scratch
        self.key = key
        self.places: dict[K, Path] = {}

    def place(self, name: K) -> Path:
        if name not in self.places:
            key = digest(self.key, name)
            self.places[name] = self.scratch / key[:2] / f"{key}.json"
        return self.places[name]

    def __getitem__(self, name: K) -> V:
        value = recall(self.place(name))
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: K, value: V) -> None:
        keep(self.place(name), value)

    def __delitem__(self, name: K) -> None:
        self.place(name).unlink()

    def __iter__(self) -> Iterator[K]:
        return (name for name, place in self.places.items() if place.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def forget_others(self) -> None:
        """Remove the files below the folder that this object neither read nor wrote, such as those of earlier weights."""
        kept = set(self.places.values())
        for path in self.scratch.glob("??/*.json"):
            if path not in kept:
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove every file that this object read or wrote; call it after the result is written."""
        for place in self.places.values():
            place.unlink(missing_ok=True)


class Levels(Store[tuple[int, float], float]):
    """Solved Berk-Jones levels by (n, alpha), below LETHE_CACHE or the user's cache; no place to write costs time only."""

    def __init__(self, folder: Path | None = None):
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        place = folder or Path(os.environ.get("LETHE_CACHE") or home / "lethe") / "berk-jones"
        super().__init__(
            place, cache_key("lethe.statistics.bands", libraries=versions("numpy", "scipy"))
        )

    def __setitem__(self, name: tuple[int, float], eta: float) -> None:
        with contextlib.suppress(OSError, LetheError):
            super().__setitem__(name, eta)
