"""A preset: a file of keys and values, each of which replaces the whole value at its key of params.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lethe.config.assignments import section_of
from lethe.config.schema import FILE
from lethe.config.yaml import read_yaml
from lethe.errors import BadValue


def read_preset(folder: Path, name: str, asked: str = "--preset") -> dict[str, object]:
    """The keys and values of a preset, in their order."""
    presets = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in presets:
        raise BadValue(asked, name, f"one of {', '.join(presets)}" if presets else "none: there is no preset")
    return read_yaml(folder / f"{name}.yaml")


def changed_document(
    settings: Iterable[tuple[str, object]], source: str | Path = FILE, shown_as: str = FILE
) -> dict[str, object]:
    """Read params.yaml and set keys of it in order; no file changes and nothing is validated."""
    document = read_yaml(source)
    for key, value in settings:
        section, last = section_of(document, key, value, shown_as)
        section[last] = value
    return document
