"""TOFU (Maini et al., 2024): 200 fictitious authors with 20 pairs each, real authors and world facts.

The data comes from a folder of JSON-lines files (`forget05.json`, `forget05_perturbed.json`, `retain95.json`,
`retain_perturbed.json`, `real_authors_perturbed.json`, `world_facts_perturbed.json`), or
from the hub. The perturbed files add a paraphrased and several wrong answers to rows of the other files; rows are
joined by their text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from pydantic import Field

from lethe.config.fields import Count, Integer, Section
from lethe.data.rows import row_problem
from lethe.data.sources import hub_entries
from lethe.errors import BadParam, BadRow
from lethe.io.json_files import read_jsonl

if TYPE_CHECKING:
    from lethe.config.schema import Data
    from lethe.io.artifacts import Row

RETAIN = {"forget01": "retain99", "forget05": "retain95", "forget10": "retain90"}
PAIRS = 20  # per author
ADDED = ("paraphrased_question", "paraphrased_answer", "perturbed_answer")

Reader = Callable[[str], list[dict]]


class Params(Section):
    """The name on the hub, if any, and the numbers of kept and held-out authors."""

    hub: str | None
    retain_authors: Count | None
    heldout_authors: Annotated[Integer, Field(ge=0)]


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The splits; ``data.tofu`` sets their source and the size of the retain set.

    Held-out authors are the last authors before the forget set. They are removed from the retain set, so no model
    learns them.
    """
    options = data.own(Params)
    read = _from_hub(options.hub) if options.hub else _from_folder(source)
    retain = _joined(read(RETAIN[data.forget]), read("retain_perturbed"))
    forget = _joined(read(data.forget), read(f"{data.forget}_perturbed"))
    pairs = _numbered([*retain, *forget])
    retain, forget = pairs[: len(retain)], pairs[len(retain) :]
    learned = len(retain) - PAIRS * options.heldout_authors
    if learned <= 0:
        legal = f"fewer than the {len(retain) // PAIRS} authors of {RETAIN[data.forget]}"
        raise BadParam("data.tofu.heldout_authors", options.heldout_authors, legal)
    size = learned if options.retain_authors is None else min(learned, PAIRS * options.retain_authors)
    splits = {
        "forget": forget,
        "retain": retain[:size],
        "world": _named(read("world_facts_perturbed"), "world"),
        "real_authors": _named(read("real_authors_perturbed"), "real-author"),
        "heldout": retain[learned:],
    }
    return {name: cast("list[Row]", rows) for name, rows in splits.items() if rows}


def _from_folder(folder: Path) -> Reader:
    def read(name: str) -> list[dict]:
        path = folder / f"{name}.json"
        rows = []
        for line, row in read_jsonl(path):
            problem = row_problem({"id": name, **row})
            if problem:
                raise BadRow(path, line, problem)
            rows.append(row)
        return rows

    return read


def _from_hub(repository: str) -> Reader:
    def read(name: str) -> list[dict]:
        entries = hub_entries(repository, name, "train", "data.tofu.hub")
        for number, entry in enumerate(entries, start=1):
            problem = row_problem({"id": name, **entry.cells})
            if problem:
                raise BadRow(f"{repository}/{name}", number, problem)
        return [dict(entry.cells) for entry in entries]

    return read


def _joined(rows: list[dict], perturbed: list[dict]) -> list[dict]:
    """The rows, with the additional answers of the perturbed file."""
    added = {(row["question"], row["answer"]): {key: row[key] for key in ADDED if key in row} for row in perturbed}
    return [{**row, **added.get((row["question"], row["answer"]), {})} for row in rows]


def _numbered(pairs: list[dict]) -> list[dict]:
    """Ids by position among all pairs, retain set first: a row has the same id for every forget set."""
    return [
        {"id": f"tofu-{place:04d}", "author": f"author-{place // PAIRS:03d}", **row}
        for place, row in enumerate(pairs)
    ]


def _named(rows: list[dict], name: str) -> list[dict]:
    return [{"id": f"{name}-{number:03d}", **row} for number, row in enumerate(rows)]
