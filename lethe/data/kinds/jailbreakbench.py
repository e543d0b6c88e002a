"""JailbreakBench (Chao et al., 2024): harmful behaviours, and benign ones on the same themes, from CSV files or the hub.

Columns: ``Goal, Target``, and where present ``Index, Behavior, Category, Source``; the package's own table has no index, and
its rows are numbered. The goal is the question and the target the answer. The harmful behaviours are the forget set; the
benign behaviours are the retain set.
"""

from pathlib import Path

from lethe.config.fields import Place, Section
from lethe.config.schema import Data
from lethe.data.rows import Entry, csv_entries, first_of, hub_entries, rows_of
from lethe.errors import shortened
from lethe.io.artifacts import Row

AIM = "refuse"
NEEDED = ("Goal", "Target")
FURTHER = ("Behavior", "Category", "Source")
COLUMNS = ("Index", *NEEDED, *FURTHER)
DIGITS = 18  # the most of an index
PARTS = {"forget": "harmful", "retain": "benign"}  # split of Lethe -> split of the data set


class Params(Section):
    """The name on the hub (JailbreakBench/JBB-Behaviors), or null for the files in ``data.source``."""

    hub: Place | None


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The split ``forget``, and ``retain`` where its file is there."""
    hub = data.of_kind(Params).hub
    splits = {}
    for split, part in PARTS.items():
        name = f"{part}-behaviors.csv"
        is_there = (source / name).is_file() or (source / "data" / name).is_file()
        if hub is not None:
            entries = hub_entries(hub, "behaviors", part, "data.jailbreakbench.hub")
        elif split == "forget" or is_there:
            entries = csv_entries(first_of(source, name, f"data/{name}"), NEEDED)
        else:
            continue
        pairs = []
        for place, entry in enumerate(entries):
            pairs.append((entry, _row(entry, part, place)))
        splits[split] = rows_of(pairs)
    return splits


def _row(entry: Entry, part: str, place: int) -> dict[str, object]:
    """A row from its cells; raises a sentence where the index is no whole number."""
    cells = {}
    for column in COLUMNS:
        cells[column] = entry.text(column, optional=column not in NEEDED)
    index = str(place)
    if "Index" in entry.cells:
        index = cells["Index"]
    if not index.isdecimal() or len(index) > DIGITS:
        legal = f"a whole number of at least 0 and at most {DIGITS} digits"
        raise entry.broken(f"column 'Index': got {shortened(index)}; must be {legal}")
    row: dict[str, object] = {
        "id": f"jbb-{part}-{int(index):03d}",
        "question": cells["Goal"],
        "answer": cells["Target"],
    }
    for column in FURTHER:
        if cells[column]:
            row[column.lower()] = cells[column]
    return row
