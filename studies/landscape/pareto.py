"""The Pareto frontier of strategies with a cost and a benefit."""

from __future__ import annotations

import numpy as np


def frontier(cost: np.ndarray, benefit: np.ndarray) -> np.ndarray:
    """Indices of the strategies on the frontier, from the lowest cost to the highest benefit.

    ``cost`` and ``benefit`` (k,) are finite. A strategy is on the frontier if no strategy and no convex combination of
    two has at most its cost and at least its benefit and is better in one of them: the part of the convex hull that
    faces low cost and high benefit (Negoescu et al. 2024, section 4.2; Roijers and Whiteson 2017).
    Of several equal strategies, only the first one is included.
    """
    cost, benefit = np.asarray(cost, float), np.asarray(benefit, float)
    hull: list[int] = []
    for i in np.lexsort((-benefit, cost)):
        if hull and benefit[i] <= benefit[hull[-1]]:
            continue  # no lower cost and no higher benefit
        while len(hull) > 1 and not _turns_down(hull[-2], hull[-1], i, cost, benefit):
            hull.pop()
        hull.append(int(i))
    return np.array(hull, dtype=int)


def _turns_down(a: int, b: int, c: int, cost: np.ndarray, benefit: np.ndarray) -> bool:
    """Whether b lies above the line from a to c."""
    return (benefit[b] - benefit[a]) * (cost[c] - cost[a]) > (benefit[c] - benefit[a]) * (cost[b] - cost[a])
