from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lethe.errors import BadValue
from lethe.statistics.two_sample import auc, auc_interval, ks_test


@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 5), (6, 6), (40, 120), (117, 100)])
@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
def test_ks_equals_scipy_exact(m, n, shift):
    rng = np.random.default_rng(m * n)
    first, second = rng.normal(size=m), rng.normal(shift, 1.5, size=n)
    expected = stats.ks_2samp(first, second, method="exact")
    got = ks_test(first, second)
    assert got.statistic == pytest.approx(expected.statistic, abs=1e-15)
    assert got.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert (got.n_first, got.n_second) == (m, n)


@pytest.mark.parametrize(("m", "n"), [(2, 2), (3, 4), (4, 4)])
def test_ks_equals_counting_every_arrangement(m, n):
    """The naive twin: every way in which the m + n ranks can fall to the two samples."""
    ranks = range(m + n)
    gaps = []
    for first in itertools.combinations(ranks, m):
        inside = np.isin(ranks, first)
        gaps.append(int(np.abs(n * np.cumsum(inside) - m * np.cumsum(~inside)).max()))
    for first in itertools.combinations(ranks, m):
        second = [rank for rank in ranks if rank not in first]
        got = ks_test(np.array(first), np.array(second))
        gap = round(got.statistic * m * n)
        assert got.p_value == pytest.approx(float(Fraction(sum(g >= gap for g in gaps), len(gaps))), rel=1e-12)


def test_ks_keeps_its_precision_far_in_the_tail():
    """Complete separation: 2 of the binomially many arrangements."""
    got = ks_test(np.arange(100), np.arange(1000, 1100))
    assert got.statistic == 1
    assert got.p_value == pytest.approx(2 / math.comb(200, 100), rel=1e-12)


def test_ks_of_equal_samples_and_of_ties():
    assert ks_test(np.zeros(5), np.zeros(7)).p_value == 1
    assert ks_test([0, 0, 1], [0, 1, 1]).statistic == pytest.approx(1 / 3)


def test_ks_is_uniform_or_larger_under_the_null():
    rng = np.random.default_rng(7)
    p = np.array([ks_test(rng.normal(size=30), rng.normal(size=20)).p_value for _ in range(1000)])
    for level in (0.01, 0.05, 0.2, 0.5):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / len(p))


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=12),
    st.lists(st.integers(0, 4), min_size=2, max_size=12),
)
def test_auc_interval_holds_its_value_and_is_symmetric(members, nonmembers):
    got = auc_interval(members, nonmembers)
    assert got.value == pytest.approx(auc(members, nonmembers))
    assert 0 <= got.low <= got.value <= got.high <= 1
    mirrored = auc_interval(nonmembers, members)
    assert mirrored.low == pytest.approx(1 - got.high, abs=1e-9)


# (members' draw, nonmembers' draw, true AUC): no signal, a strong signal, ties, unequal spread
CASES = {
    "null": (lambda r, k: r.normal(size=k), lambda r, k: r.normal(size=k), 0.5),
    "strong": (lambda r, k: r.exponential(9, k), lambda r, k: r.exponential(1, k), 0.9),
    "ties": (lambda r, k: r.binomial(1, 0.7, k), lambda r, k: r.binomial(1, 0.3, k), 0.7),
    "spread": (lambda r, k: r.normal(0, 10, k), lambda r, k: r.normal(size=k), 0.5),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sizes", [(5, 50), (40, 40)])
def test_auc_interval_covers(case, sizes):
    rng = np.random.default_rng(11)
    draw_members, draw_nonmembers, truth = CASES[case]
    runs, alpha = 800, 0.1
    missed = 0
    for _ in range(runs):
        got = auc_interval(draw_members(rng, sizes[0]), draw_nonmembers(rng, sizes[1]), alpha)
        missed += not got.low <= truth <= got.high
    slack = 3 * np.sqrt(alpha * (1 - alpha) / runs)
    assert missed / runs <= alpha + slack


def test_auc_interval_of_perfect_separation_has_width():
    kl = auc_interval(np.arange(10, 20), np.arange(10))
    # n kl(1, q) = -n ln q <= ln(2 / alpha)
    assert (kl.low, kl.high) == (pytest.approx((0.05 / 2) ** (1 / 10), abs=1e-9), 1.0)


@pytest.mark.parametrize("bad", [[], [np.nan, 1.0]])
def test_bad_samples_are_refused(bad):
    for function in (ks_test, auc_interval):
        with pytest.raises(BadValue):
            function(bad, [1.0, 2.0])
        with pytest.raises(BadValue):
            function([1.0, 2.0], bad)


def test_bad_levels_are_refused():
    with pytest.raises(BadValue, match="alpha"):
        auc_interval([1], [0], alpha=0)
