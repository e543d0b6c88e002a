"""The mean of P(leak): which of two intervals is used is known before any draw, and the one used keeps its level."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.statistics.answer_tree import Masses, Remainder, Rounding
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.leak_share import exact_is_sharper, mean_leak_interval, silent_upper
from tests.lethe.statistics.answer_tree_coverage import EXACT_LEAK, QUESTIONS, TREES
from tests.lethe.statistics.misses import tolerated

ALPHA, N = 0.02, 256


def known(name):
    masses, chances = TREES[name]
    return Masses((EXACT_LEAK,), (1 - EXACT_LEAK - float(masses.sum()),)), EXACT_LEAK + float(masses @ chances)


def drawn(name, rho, runs, seed):
    """Sampled leaks (runs, questions) of the rest, and leaking plain answers of all questions, (runs,)."""
    masses, chances = TREES[name]
    random = np.random.default_rng(seed)
    leaks = random.poisson(rho * float(masses @ chances), size=(runs, QUESTIONS))
    return leaks, random.binomial(N * QUESTIONS, known(name)[1], size=runs)


def exact_ends(name, rho, leaks):
    masses, _ = known(name)
    found = mean_leak_interval(
        [(masses, Remainder(rho, 10**6, int(each))) for each in leaks], [EXACT_LEAK] * len(leaks), ALPHA
    )
    return found.lower, found.upper


@pytest.mark.parametrize("rho", [20, 200, 2000])
@pytest.mark.parametrize("name", TREES)
def test_the_interval_that_is_used_keeps_its_level_and_the_better_of_two_does_not(name, rho):
    runs = 600
    masses, truth = known(name)
    leaks, hits = drawn(name, rho, runs, seed=3)
    cache = {}
    exact = np.array([cache.setdefault(tuple(sorted(row)), exact_ends(name, rho, row)) for row in leaks])
    plain = np.column_stack([end(hits, N * QUESTIONS, ALPHA / 2) for end in (binary_lower, binary_upper)])
    chosen = exact if exact_is_sharper([masses] * QUESTIONS, rho, N, ALPHA) else plain
    missed = (chosen[:, 0] > truth * (1 + 1e-12)) | (chosen[:, 1] < truth * (1 - 1e-12))
    assert missed.mean() <= tolerated(ALPHA, runs)


def test_the_choice_is_of_the_narrower_interval_where_the_guess_is_right():
    """On trees whose unexplored answers leak as often as the explored ones."""
    for rest in (0.05, 0.5):
        for share in (1e-4, 1e-2, 0.5):
            for rho in (20, 200, 2000):
                masses = Masses((share * (1 - rest),), ((1 - share) * (1 - rest),))
                random = np.random.default_rng(5)
                leaks = random.poisson(rho * rest * share, size=(40, QUESTIONS))
                hits = random.binomial(N * QUESTIONS, share, size=40)
                exact = np.mean([np.diff(_ends(masses, rho, row)) for row in leaks])
                plain = np.mean(
                    binary_upper(hits, N * QUESTIONS, ALPHA) - binary_lower(hits, N * QUESTIONS, ALPHA)
                )
                if not 0.7 < exact / plain < 1.4:
                    assert exact_is_sharper([masses] * QUESTIONS, rho, N, ALPHA) == (exact < plain)


def _ends(masses, rho, row):
    found = mean_leak_interval(
        [(masses, Remainder(rho, 10**6, int(each))) for each in row], [0.0] * len(row), ALPHA
    )
    return found.lower, found.upper


def test_the_better_of_two_misses_more_often_than_either():
    """What the rule forbids: of two independent methods the misses add up, beyond the level of each."""
    name, rho, runs = "every start leaks", 2000, 4000
    _, truth = known(name)
    leaks, hits = drawn(name, rho, runs, seed=4)
    cache = {}
    exact = np.array([cache.setdefault(int(row.sum()), exact_ends(name, rho, row)[1]) for row in leaks])
    plain = binary_upper(hits, N * QUESTIONS, ALPHA / 2)
    both, alone = (np.minimum(exact, plain) < truth).mean(), [(end < truth).mean() for end in (exact, plain)]
    assert both > max(alone) + 0.8 * min(alone)
    assert max(alone) <= ALPHA / 2 < both


@given(
    leak=st.floats(0, 0.4),
    clean=st.floats(0, 0.6),
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    rho=st.floats(1, 1e6),
    allowance=st.sampled_from([0.0, 1e-5, 1e-2]),
)
@settings(max_examples=100)
def test_the_interval_is_one_and_holds_the_certain_ends(leak, clean, counts, rho, allowance):
    masses, rounding = Masses((leak,), (clean,)), Rounding(allowance, 1)
    questions = [(masses, Remainder(rho, 1000, count)) for count in counts]
    got = mean_leak_interval(questions, [leak * 0.9] * len(counts), 0.01, rounding)
    assert 0 <= got.lower <= got.value <= got.upper <= 1 + 1e-9
    assert got.lower >= leak * 0.9 * (1 - 1e-12)
    assert got.n == 1000 * len(counts)
    lower, upper = got.bounds()
    assert (lower.alpha, upper.alpha) == (0.005, 0.005)


def test_nothing_sampled_never_replaces_and_a_silent_model_needs_a_rate_of_n():
    nothing = [Masses((0.0,), (0.0,))] * 4
    assert not exact_is_sharper(nothing, 0.0, 10, ALPHA)
    assert not exact_is_sharper(nothing, 0.5 * N, N, ALPHA)
    assert exact_is_sharper(nothing, 2.0 * N, N, ALPHA)
    assert silent_upper(N, 4, 0.01) == pytest.approx(-np.log(0.01) / (4 * N))
    with pytest.raises(BadValue, match="n"):
        exact_is_sharper(nothing, 1.0, 0, ALPHA)
    with pytest.raises(BadValue, match="lowers"):
        mean_leak_interval([(nothing[0], Remainder(1.0))], [], ALPHA)
