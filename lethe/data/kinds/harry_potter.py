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
    """The split ``forget``, and ``retain`` where its file is named."""
    options = data.of_kind(Params)
    splits = {"forget": _rows(source / options.file, "harry-potter")}
    if options.retain is not None:
        splits["retain"] = _rows(source / options.retain, "harry-potter-retain")
    return splits


def _rows(path: Path, name: str) -> list[Row]:
    """The rows of a file, whose ids begin with ``name``."""
    pairs = []
    for number, entry in enumerate(csv_entries(path, COLUMNS), start=1):
        pairs.append((entry, _row(entry, f"{name}-{number:03d}")))
    return rows_of(pairs)


def _row(entry: Entry, name: str) -> dict[str, object]:
    """A row from its three cells; raises a sentence where the cell of keywords holds none."""
    question = entry.text("Question")
    answer = entry.text("Affirmative Response")
    keywords = entry.text("Key Words")
    words = [word.strip() for word in keywords.split(",") if word.strip()]
    if not words:
        legal = "keywords separated by commas"
        raise entry.broken(f"column 'Key Words': got {keywords!r}; must be {legal}")
    return {
        "id": name,
        "question": question,
        "answer": answer,
        "keywords": words,
    }
