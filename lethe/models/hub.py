"""Checkpoints of the Hugging Face hub by name and revision: a folder here that holds the files of one commit.

In params.yaml such a checkpoint is the folder ``data/models/hub/ORG/NAME@REVISION`` (without ``@REVISION``: main),
which `lethe run` fills before any stage starts, and whose content DVC tracks.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from lethe.errors import BadFile, reason_of
from lethe.io.files import atomic_folder, write_json

HUB = Path("data/models/hub")
PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
NAME = re.compile(rf"({PART}/{PART})(?:@([A-Za-z0-9][A-Za-z0-9._-]*))?")
# No code and no other format of the weights is fetched.
WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
SOURCE = "source.json"
MAIN = "main"


@dataclass(frozen=True)
class HubName:
    """A repository of the hub and one of its revisions."""

    repository: str
    revision: str

    @property
    def folder(self) -> Path:
        """The folder that stands for the checkpoint in params.yaml."""
        return HUB / (self.repository if self.revision == MAIN else str(self))

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}"


def hub_name(text: str | os.PathLike) -> HubName | None:
    """Read ``ORG/NAME`` or ``ORG/NAME@REVISION``; None for any other text."""
    parts = NAME.fullmatch(os.fspath(text))
    return HubName(parts[1], parts[2] or MAIN) if parts else None


def named_by(path: str | os.PathLike) -> HubName | None:
    """The checkpoint that a folder below `HUB` stands for; None for any other path."""
    place = Path(os.path.normpath(path))
    return hub_name(place.relative_to(HUB)) if place.is_relative_to(HUB) else None


def fill(name: HubName, root: Path = Path()) -> Path:
    """The checkpoint's folder below ``root``, filled from the hub's cache or the hub where it is missing."""
    folder = root / name.folder
    if (folder / SOURCE).is_file():
        return folder
    snapshot = _snapshot(name)
    with atomic_folder(folder) as fresh:
        for path in sorted(snapshot.rglob("*")):
            # Another program may have put code into the cache.
            if path.is_file() and any(path.match(wanted) for wanted in WANTED):
                target = fresh / path.relative_to(snapshot)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        source = {"repository": name.repository, "revision": name.revision, "commit": snapshot.name}
        write_json(fresh / SOURCE, source)
    return folder


def _snapshot(name: HubName) -> Path:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(name.repository, revision=name.revision, allow_patterns=WANTED)
        )
    except Exception as error:  # the library and the network raise many unrelated exceptions
        raise BadFile(
            str(name),
            f"is neither in the hub's cache nor to be had from the hub ({reason_of(error).rstrip('.')})",
            "Check name, revision and network, or name the folder of a checkpoint.",
        ) from error
    if not (folder / "config.json").is_file() and not (folder / "adapter_config.json").is_file():
        remedy = "Name the repository of a language model or of an adapter."
        raise BadFile(str(name), "holds no config.json", remedy)
    return folder
