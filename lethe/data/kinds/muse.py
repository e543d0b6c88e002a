"""MUSE (Shi et al., 2024): knowledge and verbatim memorisation of news or books, from JSON files or the hub.

A corpus is a folder with ``knowmem/forget_qa.json`` and ``knowmem/retain_qa.json`` (or ``retain2_qa.json``): lists of
objects with ``question`` and ``answer``; and ``verbmem/forget.json``: a list of objects with ``prompt`` and ``gt``, the
text that continues the prompt. On the hub (muse-bench/MUSE-News, muse-bench/MUSE-Books) folders are parts and files are
splits.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lethe.config.fields import Place, Section
from lethe.config.schema import Data
from lethe.data.rows import Entry, first_of, hub_entries, json_entries, rows_of
from lethe.io.artifacts import Row

KEYS = {"knowmem": ("question", "answer"), "verbmem": ("prompt", "gt")}
FORGET = {"knowmem": ("forget_qa",), "verbmem": ("forget",)}
RETAIN = ("retain_qa", "retain2_qa")


class Params(Section):
    """The name on the hub, or null for the folder ``data.source``; the forget sets to ask about."""

    hub: Place | None
    parts: Annotated[list[Literal["knowmem", "verbmem"]], Field(min_length=1)]


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The splits ``forget``, of the parts that are asked for, and ``retain``."""
    options = data.of_kind(Params)

    def entries(part: str, names: tuple[str, ...]) -> list[Entry]:
        if options.hub is not None:
            return hub_entries(options.hub, part, names[0], "data.muse.hub")
        files = [f"{part}/{name}.json" for name in names]
        return json_entries(first_of(source, *files))

    forget = []
    for part in dict.fromkeys(options.parts):
        forget += _rows(entries(part, FORGET[part]), part, part)
    retain = _rows(entries("knowmem", RETAIN), "knowmem", "retain")
    return {"forget": forget, "retain": retain}


def _rows(entries: Iterable[Entry], part: str, name: str) -> list[Row]:
    """The rows of a part, whose ids begin with ``name``."""
    question, answer = KEYS[part]
    pairs = []
    for number, entry in enumerate(entries, start=1):
        row = {
            "id": f"{name}-{number:03d}",
            "question": entry.text(question),
            "answer": entry.text(answer),
        }
        pairs.append((entry, row))
    return rows_of(pairs)
