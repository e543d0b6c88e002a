"""TOFU (Maini et al., 2024): 200 fictitious authors with 20 pairs each, real authors and world facts.

The data comes from a folder of JSON-lines files (`forget05.json`, `retain95.json`, `forget05_perturbed.json`, ...) or from
the hub. The perturbed files add a paraphrased and several wrong answers to rows of the other files, joined by their text.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, cast

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
    """What is read of TOFU.

    Attributes
    ----------
    hub
        The name on the hub; null reads ``data.source``.
    retain_authors
        The number of authors of the retain set, the first ones; null: all.
    heldout_authors
        The number of authors that are taken from the retain set, and that no model is trained on.
    retain
        "all" rows of these authors, or those that are "evaluated": the 400 with wrong answers, on which TOFU evaluates.
    """

    hub: str | None
    retain_authors: Count | None
    heldout_authors: Annotated[Integer, Field(ge=0)]
    retain: Literal["all", "evaluated"] = "all"


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The splits; held-out authors, the last ones before the forget set, are taken from the retain set.

    Raises
    ------
    BadParam
        If no author is left to retain.
    BadFile, BadRow
        If a file is missing, or a row breaks the contract.
    """
    options = data.of_kind(Params)
    read = partial(_read, options.hub or None, source)
    retain = _joined(read(RETAIN[data.forget]), read("retain_perturbed"))
    forget = _joined(read(data.forget), read(f"{data.forget}_perturbed"))

    pairs = _numbered([*retain, *forget])
    n_retain = len(retain)
    n_learned = n_retain - PAIRS * options.heldout_authors
    if n_learned <= 0:
        legal = f"fewer than the {n_retain // PAIRS} authors of {RETAIN[data.forget]}"
        raise BadParam("data.tofu.heldout_authors", options.heldout_authors, legal)
    n_kept = n_learned
    if options.retain_authors is not None:
        n_kept = min(n_learned, PAIRS * options.retain_authors)
    kept = pairs[:n_kept]
    if options.retain == "evaluated":
        kept = [row for row in kept if "perturbed_answer" in row]

    splits = {
        "forget": pairs[n_retain:],
        "retain": kept,
        "world": _named(read("world_facts_perturbed"), "world"),
        "real_authors": _named(read("real_authors_perturbed"), "real-author"),
        "heldout": pairs[n_learned:n_retain],
    }
    return {name: cast("list[Row]", rows) for name, rows in splits.items() if rows}


def _read(hub: str | None, source: Path, name: str) -> list[dict]:
    """The rows of a file or of a part of the hub; raises `BadRow` for one that the contract refuses."""
    numbered: Iterable[tuple[int, Mapping[str, object]]]
    if hub is None:
        place = source / f"{name}.json"
        numbered = read_jsonl(place)
    else:
        place = Path(hub, name)
        entries = hub_entries(hub, name, "train", "data.tofu.hub")
        numbered = enumerate([entry.cells for entry in entries], start=1)
    rows = []
    for number, row in numbered:
        problem = row_problem({"id": name, **row})
        if problem:
            raise BadRow(place, number, problem)
        rows.append(dict(row))
    return rows


def _joined(rows: list[dict], perturbed: list[dict]) -> list[dict]:
    """The rows with the answers that the perturbed file adds to the same question and answer."""
    added_to_pair = {}
    for row in perturbed:
        pair = (row["question"], row["answer"])
        added_to_pair[pair] = {key: row[key] for key in ADDED if key in row}
    joined = []
    for row in rows:
        pair = (row["question"], row["answer"])
        joined.append(row | added_to_pair.get(pair, {}))
    return joined


def _numbered(pairs: list[dict]) -> list[dict]:
    """Ids by position among all pairs, retain set first: a row has the same id for every forget set."""
    numbered = []
    for place, row in enumerate(pairs):
        author = f"author-{place // PAIRS:03d}"
        numbered.append({"id": f"tofu-{place:04d}", "author": author, **row})
    return numbered


def _named(rows: list[dict], name: str) -> list[dict]:
    """The rows with a name and their numbers as ids."""
    return [{"id": f"{name}-{number:03d}", **row} for number, row in enumerate(rows)]
