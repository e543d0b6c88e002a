"""The mean of P(leak): its exact interval, and that of samples and exact bounds together, keep their levels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.evaluation.findings import mean_leak_interval
from lethe.statistics.answer_tree import Masses, Remainder, Rounding
from lethe.statistics.bounds import binary_lower, binary_upper
from tests.lethe.statistics.coverage import EXACT_LEAK, QUESTIONS, TREES
from tests.lethe.statistics.draws import tolerated

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


def exact_ends(name, rho, leaks, alpha):
    """Ends (runs, 2) of the interval from the sampled leaks of each run."""
    masses, _ = known(name)

    def ends(row):
        each = [(masses, Remainder(rho, 10**6, int(count))) for count in row]
        found = mean_leak_interval(each, [EXACT_LEAK] * len(row), alpha)
        return found.lower, found.upper

    cases, place = np.unique(np.sort(leaks, axis=1), axis=0, return_inverse=True)
    return np.array([ends(row) for row in cases])[place.ravel()]


def plain_ends(hits, alpha):
    """Ends (runs, 2) of the interval from sampled answers: Clopper-Pearson of the pooled count."""
    return np.column_stack([end(hits, N * QUESTIONS, alpha / 2) for end in (binary_lower, binary_upper)])


def misses(ends, truth):
    return ((ends[:, 0] > truth * (1 + 1e-12)) | (ends[:, 1] < truth * (1 - 1e-12))).mean()


def joined(*both):
    """As `lethe.evaluation.findings` joins two intervals."""
    return np.column_stack(
        [np.max([ends[:, 0] for ends in both], axis=0), np.min([ends[:, 1] for ends in both], axis=0)]
    )


@pytest.mark.parametrize("rho", [20, 200, 2000])
@pytest.mark.parametrize("name", TREES)
def test_both_sources_at_half_the_level_miss_at_most_at_the_level(name, rho):
    runs = 600
    truth = known(name)[1]
    leaks, hits = drawn(name, rho, runs, seed=3)
    exact, plain = exact_ends(name, rho, leaks, ALPHA / 2), plain_ends(hits, ALPHA / 2)
    both = joined(exact, plain)
    assert misses(both, truth) <= tolerated(ALPHA, runs)
    for alone in (exact, plain):  # each end is the better of the two
        assert (both[:, 0] >= alone[:, 0]).all()
        assert (both[:, 1] <= alone[:, 1]).all()


def test_both_sources_at_the_whole_level_miss_more_often_than_either():
    """Why each takes half: of two independent sources the misses add up, beyond the level of each."""
    name, rho, runs = "every start leaks", 2000, 4000
    truth = known(name)[1]
    leaks, hits = drawn(name, rho, runs, seed=4)
    cases, place = np.unique(leaks.sum(axis=1), return_inverse=True)
    by_sum = np.column_stack(
        [cases, np.zeros((len(cases), QUESTIONS - 1), dtype=int)]
    )  # the ends depend on the sum
    exact, plain = exact_ends(name, rho, by_sum, ALPHA)[place], plain_ends(hits, ALPHA)
    below = [(ends[:, 1] < truth).mean() for ends in (exact, plain, joined(exact, plain))]
    assert below[2] > max(below[:2]) + 0.8 * min(below[:2])
    assert max(below[:2]) <= ALPHA / 2 < below[2]
    halves = joined(exact_ends(name, rho, by_sum, ALPHA / 2)[place], plain_ends(hits, ALPHA / 2))
    assert misses(halves, truth) <= ALPHA


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
