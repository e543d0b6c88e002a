"""Which keys of params.yaml the code reads: settings that note every access."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from lethe import config
from lethe.config.fields import Section

WHOLE = {"model_dump", "model_dump_json"}


class Recorder:
    """Notes the keys of one `Params` that are read; a section that is dumped counts as read whole."""

    def __init__(self, params: config.Params) -> None:
        self.read: set[str] = set()
        self._paths: dict[int, str] = {}
        self._alive: list[Section] = []  # no other object gets the number of one that we know
        self._add(params, "")

    def _add(self, value: Any, path: str) -> None:
        if isinstance(value, Section):
            self._paths[id(value)] = path
            self._alive.append(value)
        for name, inner in _entries(value).items():
            self._add(inner, f"{path}.{name}".strip("."))

    def _whole(self, value: Any, path: str) -> None:
        if not _is_table(value):
            self.read.add(path)
        for name, inner in _entries(value).items():
            self._whole(inner, f"{path}.{name}".strip("."))

    def note(self, section: Section, name: str) -> None:
        path = self._paths.get(id(section))
        if path is None:
            return
        if name in WHOLE:
            self._whole(section, path)
        elif name in _entries(section) and not _is_table(_entries(section)[name]):
            self.read.add(f"{path}.{name}".strip("."))

    def copied(self, section: Section, copy: Section) -> Section:
        if id(section) in self._paths:
            self._add(copy, self._paths[id(section)])
        return copy


def _entries(value: Any) -> dict[str, Any]:
    if isinstance(value, Section):
        return value.__dict__ | (value.__pydantic_extra__ or {})
    return value if _is_table(value) else {}


def _is_table(value: Any) -> bool:
    """A section, or a dictionary of sections such as ``models``."""
    entries = isinstance(value, dict) and value.values()
    return isinstance(value, Section) or bool(
        entries and all(isinstance(entry, Section) for entry in entries)
    )


@contextlib.contextmanager
def recorded() -> Iterator[set[str]]:
    """The keys that are read, of every `Params` that is loaded meanwhile."""
    read: set[str] = set()
    recorders: list[Recorder] = []
    load = config.load
    plain = Section.__getattribute__
    model_copy = Section.model_copy

    def noted_load(*arguments: Any) -> config.Params:
        params = load(*arguments)
        recorders.append(Recorder(params))
        recorders[-1].read = read
        return params

    def noted(self: Section, name: str) -> Any:
        if not name.startswith("_"):
            for recorder in recorders:
                recorder.note(self, name)
        return plain(self, name)

    def noted_copy(self: Section, **options: Any) -> Section:
        copy = model_copy(self, **options)
        for recorder in recorders:
            recorder.copied(self, copy)
        return copy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "load", noted_load)
        patch.setattr(Section, "__getattribute__", noted, raising=False)
        patch.setattr(Section, "model_copy", noted_copy)
        yield read
