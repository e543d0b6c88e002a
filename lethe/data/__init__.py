"""Datasets: loads the kind of dataset that params.yaml names, and checks every row of every split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lethe.registry import DATASETS

if TYPE_CHECKING:
    from lethe.config.schema import Data
    from lethe.io.artifacts import Aim, Row


def load_splits(data: Data, root: Path = Path()) -> dict[str, list[Row]]:
    """Load the dataset that ``data.kind`` names; see `lethe.data.kinds`."""
    from lethe.data.rows import check_splits

    return check_splits(DATASETS[data.kind].load(data, root / data.source))


def aim(kind: str) -> Aim:
    """Return what a model should do about the forget set of a kind of dataset: ``AIM`` of its module, else forget."""
    return getattr(DATASETS[kind], "AIM", "forget")
