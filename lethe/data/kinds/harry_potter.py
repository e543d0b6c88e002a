"""Harry Potter Q&A (Schwinn et al., 2024): questions, affirmative answers and keywords, as a CSV.

Columns: ``Question``, ``Affirmative Response``, ``Key Words``. The last one lists alternatives, separated by commas: an
answer leaks if any of them occurs. "A Probabilistic Perspective on Unlearning and Alignment for Large Language Models"
(section 6.1) measures M_bin on this data set.
"""

from pathlib import Path

from lethe.config.fields import Place, Section
from lethe.config.schema import Data
from lethe.data.rows import Entry, csv_entries, rows_of
from lethe.io.artifacts import Row

COLUMNS = ("Question", "Affirmative Response", "Key Words")


class Params(Section):
    """The files in ``data.source``; without ``retain`` no model can be trained or unlearned on the data set."""

    file: Place
    retain: Place | None


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    options = data.own(Params)
    files = {"forget": options.file, "retain": options.retain}
    return {split: _rows(source / file, split) for split, file in files.items() if file is not None}


def _rows(path: Path, split: str) -> list[Row]:
    name = "harry-potter" if split == "forget" else f"harry-potter-{split}"
    entries = enumerate(csv_entries(path, COLUMNS), start=1)
    return rows_of((entry, _row(entry, f"{name}-{number:03d}")) for number, entry in entries)


def _row(entry: Entry, name: str) -> dict[str, object]:
    question, answer, keywords = (entry.text(column) for column in COLUMNS)
    words = [word.strip() for word in keywords.split(",") if word.strip()]
    if not words:
        raise entry.broken(
            f"column 'Key Words': got {keywords!r}; must be keywords separated by commas"
        )
    return {"id": name, "question": question, "answer": answer, "keywords": words}
