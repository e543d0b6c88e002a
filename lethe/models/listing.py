"""The listing of a model folder: what `sha256sum` prints for its files, whose SHA-256 names the model to other tools."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lethe.errors import BadFile
from lethe.models.checkpoints import (
    CONFIG,
    base_of,
    check_unchanged,
    content,
    files_read,
    is_adapter,
)

BASE = "BASE"  # the line of an adapter's base model
WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class Listing:
    """The SHA-256 of each file that decides what a model answers, by name; ``base`` is that of an adapter's base model."""

    sha256_of_file: Mapping[str, str]
    base: Listing | None = None

    @property
    def text(self) -> str:
        """A line a file, sorted by the bytes of the names, as `sha256sum FILES` prints it in the locale C."""
        sha256_of_line = dict(self.sha256_of_file)
        if self.base is not None:
            sha256_of_line[BASE] = self.base.digest
        names = sorted(sha256_of_line, key=str.encode)
        return "".join(f"{sha256_of_line[name]}  {name}\n" for name in names)

    @property
    def digest(self) -> str:
        """What `sha256sum FILES | sha256sum` prints: in-toto's ``dirHash`` of these files."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def weights(self) -> tuple[str, str] | None:
        """Name and SHA-256 of the file of weights, where there is a single one of a whole model; else None.

        Other models share a shard, and an adapter's weights without their base are no model.
        """
        weights = [item for item in self.sha256_of_file.items() if item[0].endswith(WEIGHTS)]
        if self.base is not None or len(weights) != 1:
            return None
        return weights[0]


def listing_of(folder: Path) -> Listing:
    """Return the listing of a model folder, or of an adapter with its base.

    Raises `BadFile` where there are no weights, or where a file changed while the others were read: then it lists no model.
    """
    if not folder.is_dir():
        raise BadFile(folder, "is no model folder", "Name a Hugging Face model folder.")
    before = content(folder)
    listing = _listing_of(folder)
    check_unchanged(folder, before)
    return listing


def _listing_of(folder: Path) -> Listing:
    files = files_read(folder)
    base = None
    if is_adapter(folder):
        files.append(folder / CONFIG)
        base = _listing_of(base_of(folder))
    sha256_of_file = {}
    for file in files:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        sha256_of_file[file.relative_to(folder).as_posix()] = digest
    if not any(name.endswith(WEIGHTS) for name in sha256_of_file):
        remedy = "Name a Hugging Face model folder."
        raise BadFile(folder, "is no model folder with safetensors", remedy)
    return Listing(sha256_of_file, base)
