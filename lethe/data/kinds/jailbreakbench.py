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
COLUMNS = ("Index", "Goal", "Target", "Behavior", "Category", "Source")
NEEDED = ("Goal", "Target")
DIGITS = 18  # the most of an index
PARTS = {"forget": "harmful", "retain": "benign"}  # split of Lethe -> split of the data set


class Params(Section):
    """The name on the hub (JailbreakBench/JBB-Behaviors), or null for the files in ``data.source``."""

    hub: Place | None


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    hub = data.own(Params).hub
    splits = {}
    for split, part in PARTS.items():
        names = (f"{part}-behaviors.csv", f"data/{part}-behaviors.csv")
        if hub is not None:
            entries = hub_entries(hub, "behaviors", part, "data.jailbreakbench.hub")
        elif split == "forget" or any((source / name).is_file() for name in names):
            entries = csv_entries(first_of(source, *names), NEEDED)
        else:
            continue
        splits[split] = rows_of(
            (entry, _row(entry, part, place)) for place, entry in enumerate(entries)
        )
    return splits


def _row(entry: Entry, part: str, place: int) -> dict[str, object]:
    cells = {column: entry.text(column, optional=column not in NEEDED) for column in COLUMNS}
    index = cells["Index"] if "Index" in entry.cells else str(place)
    if not index.isdecimal() or len(index) > DIGITS:
        legal = f"a whole number of at least 0 and at most {DIGITS} digits"
        raise entry.broken(f"column 'Index': got {shortened(index)}; must be {legal}")
    further = {column.lower(): cells[column] for column in COLUMNS[3:] if cells[column]}
    return {
        "id": f"jbb-{part}-{int(index):03d}",
        "question": cells["Goal"],
        "answer": cells["Target"],
        **further,
    }
