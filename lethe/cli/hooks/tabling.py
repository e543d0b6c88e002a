"""What `lethe table` adds: the file of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.cli.files import fresh
from lethe.cli.outcome import Arguments, Outcome
from lethe.io.files import Json, write_text

if TYPE_CHECKING:
    from lethe.api import tabling
    from lethe.api.result import View


def table(
    call: Callable[..., tabling.Tabled | tabling.TabledMethods],
    arguments: Arguments,
    out: Path | None = None,
) -> Outcome:
    """Write the table.

    Parameters
    ----------
    out : Write the table to this file instead of printing it.
    """
    result = call(*arguments.pop("runs", ()), **arguments)
    if out is None:
        return Outcome(result)

    fresh("out", out, (".md", ".tex", ".csv"))
    write_text(out, result.text)
    return Outcome(Written(result), {"file": str(out)}, [f"The table is {out}."])


@dataclass(frozen=True)
class Written:
    """A result whose text stands in a file: a terminal shows its sentences alone."""

    result: tabling.Tabled | tabling.TabledMethods

    def views(self) -> list[View]:
        from lethe.api.result import View

        return [View("", notes=self.result.sentences())]

    def as_json(self) -> dict[str, Json]:
        return self.result.as_json()
