"""Levels of a Berk-Jones band that are taken from a few n: every band keeps its probability."""

import pytest

from lethe.statistics.bands import (
    ETA_OF_STEP,
    LARGEST_BERK_JONES,
    MOST_EXACT,
    berk_jones,
    berk_jones_eta,
    crossing,
    outward_eta,
)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("n", [129, 150, 181, 182, 255, 257, 300, 511])
def test_a_band_of_an_outward_level_holds_and_loses_little(n, alpha):
    missed = crossing(berk_jones(n, outward_eta(n, alpha)))

    assert 0.85 * alpha <= missed <= alpha


def test_the_level_falls_with_the_number_of_draws():
    levels = [berk_jones_eta(n, 0.05) for n in range(1, 60)]

    assert levels == sorted(levels, reverse=True)


@pytest.mark.parametrize("alpha", ETA_OF_STEP)
def test_a_stored_level_is_the_solved_one_rounded_down(alpha):
    for step in (14, 16, 18):
        solved = berk_jones_eta(round(2 ** (step / 2)), alpha, {})

        assert solved * (1 - 1e-8) <= ETA_OF_STEP[alpha][step] <= solved


def test_few_draws_have_the_exact_level():
    assert outward_eta(MOST_EXACT, 0.01) == berk_jones_eta(MOST_EXACT, 0.01)


@pytest.mark.parametrize("alpha", ETA_OF_STEP)
def test_the_stored_levels_reach_the_largest_band_and_hold_there(alpha):
    step = max(ETA_OF_STEP[alpha])
    n = round(2 ** (step / 2))

    missed = crossing(berk_jones(n, ETA_OF_STEP[alpha][step]))

    assert n >= LARGEST_BERK_JONES
    assert alpha * (1 - 1e-7) <= missed <= alpha
