"""The fewest that are enough against a naive twin, which asks every number in turn."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.statistics.search import fewest, fewest_between


def naive_fewest(is_enough, too_few):
    return next(number for number in count(too_few + 1) if is_enough(number))


@given(st.integers(0, 50), st.integers(0, 3_000))
def test_the_fewest_are_those_of_the_naive_twin(too_few, needed):
    def is_enough(number):
        return number >= needed

    assert fewest(is_enough, too_few) == naive_fewest(is_enough, too_few)


@given(st.integers(-5, 50), st.integers(1, 100), st.data())
def test_the_fewest_between_two_ends_are_those_of_the_naive_twin(too_few, gap, data):
    needed = data.draw(st.integers(too_few + 1, too_few + gap))

    def is_enough(number):
        return number >= needed

    assert fewest_between(is_enough, too_few, too_few + gap) == needed


def test_neither_end_is_asked():
    def never(number):
        pytest.fail(f"{number} was asked")

    assert fewest_between(never, 7, 8) == 8
