"""Datasets: loads the kind of dataset that params.yaml names, and checks every row of every split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lethe.registry import DATASETS

if TYPE_CHECKING:
    from lethe.config.schema import Data
    from lethe.io.artifacts import Aim, Row


def load_splits(data: Data, root: Path = Path()) -> dict[str, list[Row]]:
    """Load the dataset that ``data.kind`` names; see `lethe.data.kinds`.

    Parameters
    ----------
    data
        The section ``data`` of params.yaml.
    root
        The folder to which ``data.source`` is relative.

    Returns
    -------
    dict
        Rows by split name; ``forget`` is always there.

    Raises
    ------
    BadFile, BadRow
        If a file is missing, or a row breaks the contract of `lethe.data.rows`.
    BadInput
        If the forget or retain set is empty, or an id appears in two splits.
    """
    from lethe.data.rows import check_splits

    return check_splits(DATASETS[data.kind].load(data, root / data.source))


def aim(kind: str) -> Aim:
    """Return what a model should do about the forget set of a kind of dataset: ``AIM`` of its module, else forget."""
    return getattr(DATASETS[kind], "AIM", "forget")
