"""HarmBench (Mazeika et al., 2024): text behaviours, from its CSV or the hub.

Columns of the CSV: ``Behavior, FunctionalCategory, SemanticCategory, Tags, ContextString, BehaviorID``. A repository on
the hub (walledai/HarmBench) has a part for each functional category, with the columns ``prompt``, ``category`` or
``tags``, and ``context``. The behaviour is the question. The CSV has no answers: the answer is the behaviour's target in
HarmBench's own ``harmbench_targets_text.json``, if that file is in the same folder, else `AFFIRMATIVE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.config.fields import Place, Section
from lethe.data.sources import Entry, csv_entries, hub_entries, rows_of
from lethe.errors import BadFile, BadParam
from lethe.io.json_files import read_json

if TYPE_CHECKING:
    from lethe.config.schema import Data
    from lethe.io.artifacts import Row

AIM = "refuse"
COLUMNS = ("Behavior", "FunctionalCategory", "SemanticCategory", "Tags", "ContextString", "BehaviorID")
CATEGORIES = ("standard", "contextual", "copyright")
TARGETS = "harmbench_targets_text.json"
AFFIRMATIVE = "Sure, here is the answer."  # the answer of a behaviour without a target


class Params(Section):
    """The name on the hub, or null for ``file`` in ``data.source``; the functional categories to keep.

    The harm classifier does not judge copyright behaviours (tag hash_check).
    """

    hub: Place | None
    file: Place
    categories: Annotated[list[Literal["standard", "contextual", "copyright"]], Field(min_length=1)]


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The split ``forget``: the behaviours of ``data.harmbench.categories``."""
    options = data.own(Params)
    if options.hub is not None:
        rows = _from_hub(options.hub, options.categories)
    else:
        path, targets = source / options.file, _targets(source / TARGETS)
        entries = [entry for entry in csv_entries(path, COLUMNS) if _category(entry) in options.categories]
        rows = rows_of((entry, _row(entry, targets)) for entry in entries)
    if not rows:
        legal = "categories that the file has"
        raise BadParam("data.harmbench.categories", options.categories, legal)
    return {"forget": rows}


def _category(entry: Entry) -> str:
    category = entry.text("FunctionalCategory")
    if category not in CATEGORIES:
        raise entry.broken(
            f"column 'FunctionalCategory': got {category!r}; must be one of {', '.join(CATEGORIES)}"
        )
    return category


def _row(entry: Entry, targets: Mapping[str, str]) -> dict[str, object]:
    name, context = entry.text("BehaviorID"), entry.text("ContextString", optional=True)
    return {
        "id": name,
        "question": entry.text("Behavior"),
        "answer": targets.get(name, AFFIRMATIVE),
        "category": entry.text("SemanticCategory", optional=True),
        "functional_category": _category(entry),
        "tags": entry.text("Tags", optional=True),
        **({"context": context} if context else {}),
    }


def _targets(path: Path) -> dict[str, str]:
    """The target of each behaviour; where HarmBench gives a list of texts, its first one."""
    if not path.is_file():
        return {}
    whole = read_json(path)
    if not isinstance(whole, dict):
        raise BadFile(path, f"holds {type(whole).__name__}, expected an object from BehaviorID to target")
    targets = {}
    for name, target in whole.items():
        text = target[0] if isinstance(target, list) and target else target
        if not isinstance(text, str) or not text.strip():
            raise BadFile(path, f"key {name!r}: got {target!r}; must be non-empty text")
        targets[name] = text
    return targets


def _tags(entry: Entry) -> str:
    """The tags of a row on the hub, a list or a text, as the CSV writes them."""
    tags = entry.cells.get("tags")
    return ", ".join(map(str, tags)) if isinstance(tags, list) else entry.text("tags", optional=True)


def _from_hub(repository: str, categories: list) -> list[Row]:
    pairs = []
    for category in categories:
        entries = hub_entries(repository, category, "train", "data.harmbench.hub")
        for number, entry in enumerate(entries, start=1):
            context = entry.text("context", optional=True)
            row = {
                "id": f"{category}-{number:03d}",
                "question": entry.text("prompt"),
                "answer": AFFIRMATIVE,
                "category": entry.text("category", optional=True),
                "functional_category": category,
                "tags": _tags(entry),
                **({"context": context} if context else {}),
            }
            pairs.append((entry, row))
    return rows_of(pairs)
