"""TOFU (Maini et al., 2024): 200 fictitious authors with 20 pairs each, real authors and world facts.

The data comes from a folder of JSON-lines files (`forget05.json`, `retain95.json`, `forget05_perturbed.json`, ...) or from
the hub. The perturbed files add a paraphrased and several wrong answers to rows of the other files, joined by their text.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, cast

from pydantic import Field

from lethe.config.fields import Count, Integer, Section
from lethe.config.schema import Data
from lethe.data.rows import hub_entries, row_problem
from lethe.errors import BadParam, BadRow
from lethe.io.artifacts import Row
from lethe.io.files import read_jsonl

RETAIN = {"forget01": "retain99", "forget05": "retain95", "forget10": "retain90"}
PAIRS = 20  # per author
ADDED = ("paraphrased_question", "paraphrased_answer", "perturbed_answer")


class Params(Section):
    hub: str | None
    retain_authors: Count | None
    heldout_authors: Annotated[Integer, Field(ge=0)]


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The splits; held-out authors, the last ones before the forget set, are taken from the retain set."""
    options = data.own(Params)
    read = partial(_read, options.hub or None, source)
    retain = _joined(read(RETAIN[data.forget]), read("retain_perturbed"))
    forget = _joined(read(data.forget), read(f"{data.forget}_perturbed"))
    pairs = _numbered([*retain, *forget])
    retain, forget = pairs[: len(retain)], pairs[len(retain) :]
    learned = len(retain) - PAIRS * options.heldout_authors
    if learned <= 0:
        legal = f"fewer than the {len(retain) // PAIRS} authors of {RETAIN[data.forget]}"
        raise BadParam("data.tofu.heldout_authors", options.heldout_authors, legal)
    size = (
        learned if options.retain_authors is None else min(learned, PAIRS * options.retain_authors)
    )
    splits = {
        "forget": forget,
        "retain": retain[:size],
        "world": _named(read("world_facts_perturbed"), "world"),
        "real_authors": _named(read("real_authors_perturbed"), "real-author"),
        "heldout": retain[learned:],
    }
    return {name: cast("list[Row]", rows) for name, rows in splits.items() if rows}


def _read(hub: str | None, source: Path, name: str) -> list[dict]:
    place = source / f"{name}.json" if hub is None else Path(hub, name)
    numbered: Iterable[tuple[int, Mapping[str, object]]] = read_jsonl(place) if hub is None else ()
    if hub is not None:
        numbered = enumerate(
            (entry.cells for entry in hub_entries(hub, name, "train", "data.tofu.hub")), start=1
        )
    rows = []
    for number, row in numbered:
        if problem := row_problem({"id": name, **row}):
            raise BadRow(place, number, problem)
        rows.append(dict(row))
    return rows


def _joined(rows: list[dict], perturbed: list[dict]) -> list[dict]:
    added = {
        (row["question"], row["answer"]): {key: row[key] for key in ADDED if key in row}
        for row in perturbed
    }
    return [{**row, **added.get((row["question"], row["answer"]), {})} for row in rows]


def _numbered(pairs: list[dict]) -> list[dict]:
    """Ids by position among all pairs, retain set first: a row has the same id for every forget set."""
    return [
        {"id": f"tofu-{place:04d}", "author": f"author-{place // PAIRS:03d}", **row}
        for place, row in enumerate(pairs)
    ]


def _named(rows: list[dict], name: str) -> list[dict]:
    return [{"id": f"{name}-{number:03d}", **row} for number, row in enumerate(rows)]
