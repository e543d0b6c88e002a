"""The rows of a dataset that a model is asked about, shared by the stages `sample` and `likelihood`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.artifacts import Row, read_split

if TYPE_CHECKING:
    from lethe.config.evaluating import Sample

UTILITY_SPLITS = ("retain", "world", "real_authors")
HELDOUT = "heldout"


def chosen(sample: Sample, dataset: Path = Path("data/dataset")) -> dict[str, list[Row]]:
    """The rows to ask: the whole forget set, and up to ``utility_questions`` rows of each other split."""
    rows = {}
    for split in ("forget", *UTILITY_SPLITS):
        if (dataset / f"{split}.jsonl").is_file():
            rows[split] = read_split(split, dataset)
            if split != "forget":
                rows[split] = some(rows[split], sample.utility_questions, sample.seed)
    return rows


def heldout(dataset: Path) -> dict[str, list[Row]]:
    """The held-out rows by split name, empty if the dataset has none; used only for comparison, never asked."""
    return {HELDOUT: read_split(HELDOUT, dataset)} if (dataset / f"{HELDOUT}.jsonl").is_file() else {}


def some(rows: list[Row], count: int, seed: int) -> list[Row]:
    """Some of the rows, drawn at random and kept in file order."""
    picks = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [rows[i] for i in sorted(picks)]
