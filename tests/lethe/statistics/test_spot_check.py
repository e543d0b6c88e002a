"""Ends after a spot check: brute force over all reports, rational arithmetic, known identities, and the sharpest prover."""

from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest

from lethe.statistics.bounds import binary_upper
from lethe.statistics.spot_check import (
    exact_upper,
    log_clean,
    most_forged,
    passes,
    smallest_check,
    split_upper,
)

ALPHA = 0.01


def rational_clean(n, forged, s):
    return Fraction(comb(n - forged, s), comb(n, s)) if forged <= n - s else Fraction(0)


def rational_passes(p, n, leaks, s):
    total = Fraction(0)
    for count in range(n + 1):
        weight = comb(n, count) * p**count * (1 - p) ** (n - count)
        total += weight * rational_clean(n, max(count - leaks, 0), s)
    return total


def best_report(truth, leaks, s):
    """The largest probability of a clean check over all reports with at most ``leaks`` leaks, each draw forged or not."""
    n = len(truth)
    best = Fraction(0)
    for report in product((0, 1), repeat=n):
        if sum(report) > leaks:
            continue
        forged = sum(said == 0 and true == 1 for said, true in zip(report, truth, strict=True))
        best = max(best, rational_clean(n, forged, s))
    return best


@pytest.mark.parametrize(("n", "forged", "s"), [(4096, 41, 688), (200, 2, 60), (50, 49, 3)])
def test_the_chance_of_a_clean_check_is_that_of_binomials(n, forged, s):
    (log,) = log_clean(n, np.array([forged]), s)

    exact = rational_clean(n, forged, s)
    assert np.exp(log) == pytest.approx(float(exact), rel=1e-10)
    assert exact <= (1 - Fraction(forged, n)) ** s


@pytest.mark.parametrize(("n", "leaks", "s", "p"), [(20, 3, 5, "1/7"), (9, 0, 9, "1/3")])
def test_the_chance_to_pass_is_that_of_rational_arithmetic(n, leaks, s, p):
    rational = rational_passes(Fraction(p), n, leaks, s)

    assert passes(float(Fraction(p)), n, leaks, s) == pytest.approx(float(rational), rel=1e-10)


@pytest.mark.parametrize(("n", "leaks", "s"), [(4, 1, 2), (5, 0, 3), (5, 2, 1)])
def test_no_report_passes_more_often(n, leaks, s):
    p = Fraction(1, 2)
    total = sum((best_report(truth, leaks, s) for truth in product((0, 1), repeat=n)), Fraction(0))

    assert passes(0.5, n, leaks, s) == pytest.approx(float(total * p**n), rel=1e-12)


@pytest.mark.parametrize(("n", "s", "p"), [(4096, 688, 0.004), (300, 299, 0.02), (20, 5, 0.3)])
def test_a_check_of_a_report_without_leaks_is_worth_as_many_draws(n, s, p):
    assert passes(p, n, 0, s) == pytest.approx((1 - p) ** s, rel=1e-9)


@pytest.mark.parametrize(("n", "leaks"), [(60, 3), (200, 0), (30, 29)])
def test_a_check_of_all_draws_gives_the_end_of_clopper_and_pearson(n, leaks):
    end = exact_upper(n, leaks, n, ALPHA)

    assert end == pytest.approx(float(binary_upper(leaks, n, ALPHA)), abs=1e-9)


def test_a_report_of_leaks_alone_bounds_nothing():
    assert exact_upper(8, 8, 4, ALPHA) == 1.0


@pytest.mark.parametrize(
    ("leaks", "exact", "split"), [(0, 0.00667, 0.0109), (41, 0.01761, 0.02274)]
)
def test_the_ends_are_those_of_the_table(leaks, exact, split):
    assert exact_upper(4096, leaks, 688, ALPHA) == pytest.approx(exact, abs=5e-6)
    assert split_upper(4096, leaks, 688, ALPHA) == pytest.approx(split, abs=5e-6)


def test_one_forged_draw_more_would_be_found():
    for mismatches in (0, 2):
        limit = most_forged(500, 60, 0.001, mismatches)
        chances = []
        for forged in (limit, limit + 1):
            ways = [comb(forged, k) * comb(500 - forged, 60 - k) for k in range(mismatches + 1)]
            chances.append(Fraction(sum(ways), comb(500, 60)))
        assert chances[0] > Fraction("0.001") >= chances[1]


def test_a_smaller_check_does_not_suffice():
    s = smallest_check(500, 4, 0.05, ALPHA)

    assert passes(0.05, 500, 4, s) <= ALPHA < passes(0.05, 500, 4, s - 1)


def test_no_check_proves_what_all_draws_do_not():
    assert smallest_check(100, 50, 0.05, ALPHA) is None


def test_the_sharpest_prover_passes_as_often_as_the_level_allows():
    n = 500
    s = 100
    p = 0.08
    ends = {count: exact_upper(n, count, s, ALPHA) for count in range(int(n * p) + 1)}
    reported = max(count for count, end in ends.items() if end < p)
    chance = np.random.default_rng(1)
    counts = chance.binomial(n, p, 100_000)

    forged = np.maximum(counts - reported, 0)
    clean = chance.hypergeometric(forged, n - forged, s) == 0

    assert passes(p, n, reported, s) <= ALPHA
    assert clean.mean() == pytest.approx(passes(p, n, reported, s), abs=0.0015)
