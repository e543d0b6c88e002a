"""Functions of a matrix applied to rows of unequal lengths: rows of equal length form one matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from lethe.progress import progress

VALUES = 1 << 18  # of one matrix: a function that makes ten arrays of its size then needs 20 MiB
MANY = 100  # matrices; with more, the work takes seconds
T = TypeVar("T")


def by_length(rows: Sequence[np.ndarray], function: Callable[[np.ndarray], Sequence[T]]) -> list[T]:
    """Apply ``function`` to matrices of equally long rows; return the results in the order of ``rows``.

    A matrix has at most `VALUES` values, or one row, so memory does not grow with the number of rows. The function must
    treat each row by itself.
    """
    results: dict[int, T] = {}
    matrices = list(_matrices(np.array([len(row) for row in rows])))
    for places in progress(matrices, "measure", "parts") if len(matrices) > MANY else matrices:
        matrix = np.stack([rows[place] for place in places])
        results |= zip(places.tolist(), function(matrix), strict=True)
    return [results[place] for place in range(len(rows))]


def _matrices(sizes: np.ndarray) -> Iterator[np.ndarray]:
    """The places of the rows of each matrix."""
    order = np.argsort(sizes, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1) if len(sizes) else []:
        most = max(1, VALUES // max(1, int(sizes[places[0]])))
        for start in range(0, len(places), most):
            yield places[start : start + most]
