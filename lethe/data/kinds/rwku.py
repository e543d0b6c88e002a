"""RWKU (Jin et al., 2024): probes of what a model knows about famous people, from JSON files or the hub.

A folder has ``forget_level1.json`` (a blank to fill in), ``forget_level2.json`` (questions), ``forget_level3.json``
(adversarial probes), ``neighbor_level1.json`` and ``neighbor_level2.json``: lists of objects with ``query``, ``answer``,
``level``, ``type`` and ``subject``. On the hub (jinzhuoran/RWKU) each is a part with the split ``test``. The answer is
the only keyword of a row; ``probe`` is the kind of its probe.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.config.fields import Place, Section
from lethe.data.sources import Entry, first_of, hub_entries, json_entries, rows_of
from lethe.errors import BadParam

if TYPE_CHECKING:
    from lethe.config.schema import Data
    from lethe.io.artifacts import Row

BLANK = "Fill in the blank."  # the context of a probe of level 1
NEIGHBOURS = (1, 2)


class Params(Section):
    """The name on the hub, or null for ``data.source``; the person to forget, or null for all; the levels."""

    hub: Place | None
    subject: Place | None
    levels: Annotated[list[Literal[1, 2, 3]], Field(min_length=1)]


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The splits ``forget`` (``data.rwku.levels``) and ``retain`` (the neighbours, whose facts must stay)."""
    options = data.own(Params)

    def read(part: str) -> list[Entry]:
        if options.hub is not None:
            return hub_entries(options.hub, part, "test", "data.rwku.hub")
        return json_entries(first_of(source, f"{part}.json"))

    def rows(kind: str, levels: Iterable[int]) -> list[Row]:
        return rows_of(pair for level in levels for pair in _level(read(f"{kind}_level{level}"), kind, level))

    found = {"forget": rows("forget", dict.fromkeys(options.levels)), "retain": rows("neighbor", NEIGHBOURS)}
    if options.subject is None:
        return found
    kept = {
        split: [row for row in asked if row.get("author") == options.subject] for split, asked in found.items()
    }
    if not kept["forget"]:
        people = sorted({str(row.get("author")) for row in found["forget"]})
        more = f" and {len(people) - 5} more" if len(people) > 5 else ""
        raise BadParam("data.rwku.subject", options.subject, f"null, or one of {', '.join(people[:5])}{more}")
    return kept


def _level(entries: Iterable[Entry], kind: str, level: int) -> Iterable[tuple[Entry, dict[str, object]]]:
    for number, entry in enumerate(entries, start=1):
        if entry.text("level") != str(level):
            raise entry.broken(f"column 'level': got {entry.text('level')!r}; must be {level} in this file")
        answer = entry.text("answer")
        row: dict[str, object] = {
            "id": f"{kind}-{level}-{number:05d}",
            "question": entry.text("query"),
            "answer": answer,
            "keywords": [answer],
            "author": entry.text("subject"),
            "probe": entry.text("type"),
        }
        yield entry, row | ({"context": BLANK} if level == 1 else {})
