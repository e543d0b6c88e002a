"""Functions of a matrix applied to rows of unequal lengths: rows of equal length form one matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from lethe.progress import progress

MANY = 100  # different lengths; with more, the work takes seconds
T = TypeVar("T")


def by_length(rows: Sequence[np.ndarray], function: Callable[[np.ndarray], Sequence[T]]) -> list[T]:
    """Apply ``function`` to each matrix of equally long rows; return the results in the order of ``rows``."""
    sizes = np.array([len(row) for row in rows])
    results: dict[int, T] = {}
    order = np.argsort(sizes, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1) if rows else []
    for places in progress(groups, "measure", "lengths") if len(groups) > MANY else groups:
        matrix = np.stack([rows[place] for place in places])
        results |= zip(places.tolist(), function(matrix), strict=True)
    return [results[place] for place in range(len(rows))]
