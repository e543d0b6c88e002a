"""Edit distances row by row against the full table, and the numbers of a text."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.statistics.extraction import Distance, discoverable, longest_run

TOKENS = st.lists(st.integers(0, 4), min_size=1, max_size=6)


def levenshtein(one, other) -> int:
    """The full table, by its definition."""
    table = np.zeros((len(one) + 1, len(other) + 1), int)
    table[:, 0], table[0] = range(len(one) + 1), range(len(other) + 1)
    for i, j in itertools.product(range(1, len(one) + 1), range(1, len(other) + 1)):
        table[i, j] = min(
            table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (one[i - 1] != other[j - 1])
        )
    return int(table[-1, -1])


def rows_of(near: Distance, sequence) -> np.ndarray:
    row = near.start[None]
    for token in sequence:
        row = near.step(row, np.array([token]))
    return row


@given(TOKENS, st.lists(st.integers(0, 6), max_size=7), st.integers(0, 4))
def test_rows_equal_the_full_table(target, sequence, most):
    near = Distance(target, most)
    assert near.final(rows_of(near, sequence))[0] == min(levenshtein(sequence, target), most + 1)


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=4), st.lists(st.integers(0, 2), max_size=3), st.integers(0, 3)
)
def test_dead_prefixes_never_come_back_and_certain_ones_never_leave(target, prefix, most):
    near, left = Distance(target, most), 3
    row = rows_of(near, prefix)
    ends = [
        levenshtein([*prefix, *more], target) <= most
        for size in range(left + 1)
        for more in itertools.product(range(3), repeat=size)
    ]
    assert near.alive(row)[0] or not any(ends)
    assert not near.certain(row, left)[0] or all(ends)


def test_share_of_windows_by_queries_and_chance():
    p = np.array([0.5, 0.01, 0.0, 1.0])
    table = discoverable(p, [1, 68, 69, 1000], [0.5, 0.99])
    by_definition = [[np.mean(1 - (1 - p) ** n >= chance) for chance in (0.5, 0.99)] for n in (1, 68, 69, 1000)]
    assert table.tolist() == by_definition
    assert np.isnan(discoverable([])).all()


def test_wrong_use_names_the_key():
    with pytest.raises(BadValue, match="distance"):
        Distance([1], -1)


def test_the_longest_run_is_the_first_of_the_longest():
    assert longest_run([]) == (0, 0)
    assert longest_run([0.5, 0.5, 0.4, 1, 1, 1]) == (3, 3)
