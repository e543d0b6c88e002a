"""Whether one quantity rises or falls with another over a few points: Kendall's S and its permutation test."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.errors import BadValue

PERMUTATIONS = 9_999


@dataclass(frozen=True)
class Trend:
    """The order of two quantities over some points.

    Parameters
    ----------
    tau
        Kendall's tau-b, the pairs within a group alone; None where all values of one quantity are equal.
    p_falls, p_rises
        One-sided p-values of the permutation test: the second quantity falls, or rises, with the first.
    points
        The number of points.
    """

    tau: float | None
    p_falls: float
    p_rises: float
    points: int


def trend(
    x: Sequence[float],
    y: Sequence[float],
    groups: Sequence[Hashable] | None = None,
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Trend:
    """Test whether ``y`` falls or rises with ``x``.

    Parameters
    ----------
    x, y
        One value per point.
    groups
        Points are compared and permuted within their group alone; None puts all points into one group.
    permutations, seed
        The number of random permutations, and the seed that draws them.

    Returns
    -------
    Trend
        Each p-value is valid: it is at most p with probability at most p where the values of ``y`` in a group are
        exchangeable, ties included.

    Raises
    ------
    BadValue
        If the lengths differ, or a value is not finite.

    References
    ----------
    M. G. Kendall, "A New Measure of Rank Correlation", Biometrika 30 (1938). B. Phipson and G. K. Smyth, "Permutation
    P-values Should Never Be Zero", Statistical Applications in Genetics and Molecular Biology 9 (2010).

    Examples
    --------
    >>> found = trend([0, 1, 2, 3, 4, 5], [9.0, 7.0, 5.0, 4.0, 2.0, 1.0])
    >>> found.tau, found.p_falls < 0.01, found.p_rises
    (-1.0, True, 1.0)
    """
    first, second = np.asarray(x, float), np.asarray(y, float)
    members = [0] * len(first) if groups is None else list(groups)
    if first.shape != second.shape or first.ndim != 1 or len(members) != len(first):
        raise BadValue("y", f"{len(second)} values", f"as many as x and groups ({len(first)} and {len(members)})")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise BadValue("x and y", "a value that is not finite", "numbers")
    rng = np.random.default_rng(seed)
    total, permuted = 0.0, np.zeros(permutations)
    pairs_x = pairs_y = 0.0
    for group in dict.fromkeys(members):
        own = np.array([member == group for member in members])
        signs_x, signs_y = _signs(first[own]), _signs(second[own])
        total += float((signs_x * signs_y).sum()) / 2
        pairs_x, pairs_y = pairs_x + float(abs(signs_x).sum()) / 2, pairs_y + float(abs(signs_y).sum()) / 2
        for number in range(permutations):
            order = rng.permutation(len(signs_y))
            permuted[number] += float((signs_x * signs_y[np.ix_(order, order)]).sum()) / 2
    return Trend(
        total / float(np.sqrt(pairs_x * pairs_y)) if pairs_x and pairs_y else None,
        float(1 + (permuted <= total).sum()) / (1 + permutations),
        float(1 + (permuted >= total).sum()) / (1 + permutations),
        len(first),
    )


def _signs(values: np.ndarray) -> np.ndarray:
    return np.sign(values[:, None] - values[None, :])
