"""What a command answers: the result of a public function, with what the command line adds to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lethe.errors import LetheError
from lethe.io.files import Json

if TYPE_CHECKING:
    from lethe.api.result import View


Values = dict[str, Json]
Arguments = Values  # what was typed, by the parameters of the public function, which checks it


class Shown(Protocol):
    """A result of a public function."""

    def views(self) -> list[View]: ...
    def as_json(self) -> dict[str, Json]: ...


@dataclass(frozen=True)
class Outcome:
    """A result with what a command adds: keys of `--json`, sentences for people, and how the command ends once shown.

    ``brief`` are the lines that people see in place of all tables and sentences.
    """

    result: Shown
    json: Mapping[str, object] = field(default_factory=dict)
    notes: Sequence[str] = ()
    status: int = 0
    error: LetheError | None = None
    brief: Sequence[str] | None = None
