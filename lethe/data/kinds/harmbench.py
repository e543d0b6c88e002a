"""HarmBench (Mazeika et al., 2024): text behaviours, from its CSV or the hub.

Columns of the CSV: ``Behavior, FunctionalCategory, SemanticCategory, Tags, ContextString, BehaviorID``. A repository on
the hub (walledai/HarmBench) has a part for each functional category, with the columns ``prompt``, ``category`` or
``tags``, and ``context``. The behaviour is the question. The CSV has no answers: the answer is the behaviour's target in
HarmBench's own ``harmbench_targets_text.json``, if that file is in the same folder, else `AFFIRMATIVE`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lethe.config.fields import Place, Section
from lethe.config.schema import Data
from lethe.data.rows import Entry, csv_entries, hub_entries, rows_of
from lethe.errors import BadFile, BadParam
from lethe.io.artifacts import Row
from lethe.io.files import read_json

AIM = "refuse"
COLUMNS = (
    "Behavior",
    "FunctionalCategory",
    "SemanticCategory",
    "Tags",
    "ContextString",
    "BehaviorID",
)
CSV = ("Behavior", "SemanticCategory", "Tags", "ContextString")
HUB = ("prompt", "category", "tags", "context")
CATEGORIES = ("standard", "contextual", "copyright")
TARGETS = "harmbench_targets_text.json"
AFFIRMATIVE = "Sure, here is the answer."  # the answer of a behaviour without a target


class Params(Section):
    """The name on the hub, or null for ``file`` in ``data.source``; the functional categories to keep."""

    hub: Place | None
    file: Place
    categories: Annotated[list[Literal["standard", "contextual", "copyright"]], Field(min_length=1)]


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The split ``forget``: the behaviours of the wanted categories. Raises `BadParam` where there is none."""
    options = data.of_kind(Params)
    if options.hub is not None:
        rows = _from_hub(options.hub, options.categories)
    else:
        rows = _from_file(source, options)
    if not rows:
        legal = "categories that the file has"
        raise BadParam("data.harmbench.categories", options.categories, legal)
    return {"forget": rows}


def _from_file(source: Path, options: Params) -> list[Row]:
    targets = _targets(source / TARGETS)
    pairs = []
    for entry in csv_entries(source / options.file, COLUMNS):
        category = _category(entry)
        if category not in options.categories:
            continue
        name = entry.text("BehaviorID")
        pairs.append((entry, _row(entry, name, category, CSV, targets.get(name, AFFIRMATIVE))))
    return rows_of(pairs)


def _category(entry: Entry) -> str:
    category = entry.text("FunctionalCategory")
    if category not in CATEGORIES:
        legal = f"one of {', '.join(CATEGORIES)}"
        raise entry.broken(f"column 'FunctionalCategory': got {category!r}; must be {legal}")
    return category


def _row(
    entry: Entry,
    name: str,
    functional: str,
    columns: Sequence[str],
    answer: str,
) -> dict[str, object]:
    """The row of a behaviour; ``columns``: those of the question, the category, the tags (text or list) and the context."""
    question, category, tags, context = columns
    listed_tags = entry.cells.get(tags)
    if isinstance(listed_tags, list):
        tags_text = ", ".join(map(str, listed_tags))
    else:
        tags_text = entry.text(tags, optional=True)
    row: dict[str, object] = {
        "id": name,
        "question": entry.text(question),
        "answer": answer,
        "category": entry.text(category, optional=True),
        "functional_category": functional,
        "tags": tags_text,
    }
    context_text = entry.text(context, optional=True)
    if context_text:
        row["context"] = context_text
    return row


def _targets(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    whole = read_json(path)
    if not isinstance(whole, dict):
        raise BadFile(
            path, f"holds {type(whole).__name__}, expected an object from BehaviorID to target"
        )
    targets = {}
    for name, target in whole.items():
        text = target[0] if isinstance(target, list) and target else target
        if not isinstance(text, str) or not text.strip():
            raise BadFile(path, f"key {name!r}: got {target!r}; must be non-empty text")
        targets[name] = text
    return targets


def _from_hub(repository: str, categories: list) -> list[Row]:
    pairs = []
    for category in categories:
        entries = hub_entries(repository, category, "train", "data.harmbench.hub")
        for number, entry in enumerate(entries, start=1):
            name = f"{category}-{number:03d}"
            pairs.append((entry, _row(entry, name, category, HUB, AFFIRMATIVE)))
    return rows_of(pairs)
