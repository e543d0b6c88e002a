"""Rows of different lengths as matrices of equally long ones, so that a vectorised function takes many at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from lethe.progress import progress

VALUES = 1 << 18  # of one matrix: a function that makes ten arrays of its size then needs 20 MiB
MANY = 100  # matrices; with more, the work takes seconds
T = TypeVar("T")


def by_length(rows: Sequence[np.ndarray], function: Callable[[np.ndarray], Sequence[T]]) -> list[T]:
    """Apply a vectorised function to rows of different lengths.

    Parameters
    ----------
    rows
        Arrays (n,), whose lengths may differ.
    function
        From a matrix (rows, n) to one result a row, which depends on no other row.

    Returns
    -------
    list
        The results in the order of ``rows``.
    """
    result_of_place: dict[int, T] = {}
    for places, matrix in matrices(rows):
        results = function(matrix)
        result_of_place |= zip(places, results, strict=True)
    return [result_of_place[place] for place in range(len(rows))]


def matrices(rows: Sequence[np.ndarray]) -> Iterator[tuple[list[int], np.ndarray]]:
    """The rows as matrices of equally long ones, of at most `VALUES` values or one row.

    Yields
    ------
    tuple
        The places of some rows, in their order, and these rows as a matrix (places, n).
    """
    parts: list[list[int]] = []
    if len(rows):
        sizes = np.array([len(row) for row in rows])
        order = np.argsort(sizes, kind="stable")
        longer = np.flatnonzero(np.diff(sizes[order])) + 1
        for places in np.split(order, longer):
            size = int(sizes[places[0]])
            most = max(1, VALUES // max(1, size))
            for start in range(0, len(places), most):
                parts.append(places[start : start + most].tolist())

    work: Iterable[list[int]] = parts
    if len(parts) > MANY:
        work = progress(parts, "measure", "parts")
    for part in work:
        equally_long = [rows[place] for place in part]
        yield part, np.stack(equally_long)
