import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studies.landscape.study import frontier


def naive(cost, benefit):
    """On the frontier: no other point and no convex combination of two others is at least as good and better in one."""
    kept = []
    shares = np.linspace(0, 1, 401)
    for i in range(len(cost)):
        beaten = False
        for a in range(len(cost)):
            for b in range(len(cost)):
                c, v = (shares * side[a] + (1 - shares) * side[b] for side in (cost, benefit))
                beaten |= bool(
                    np.any(
                        (c <= cost[i] + 1e-12)
                        & (v >= benefit[i] - 1e-12)
                        & ((c < cost[i] - 1e-9) | (v > benefit[i] + 1e-9))
                    )
                )
        if not beaten:
            kept.append(i)
    return set(kept)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=7, unique=True))
def test_equals_its_naive_twin_but_for_points_inside_an_edge(points):
    cost, benefit = np.array(points, float).T
    found = frontier(cost, benefit)
    assert set(found) <= naive(cost, benefit)
    # No point dominates a point on the line between two corners of the frontier; only the corners are returned.
    for i in naive(cost, benefit) - set(found):
        assert np.interp(cost[i], cost[found], benefit[found]) == pytest.approx(benefit[i])
    assert np.all(np.diff(cost[found]) > 0)
    assert np.all(np.diff(benefit[found]) > 0)


def test_one_and_equal_ones():
    assert frontier([1.0], [2.0]).tolist() == [0]
    assert frontier([1.0, 1.0, 1.0], [2.0, 2.0, 1.0]).tolist() == [0]
    assert frontier([], []).tolist() == []
