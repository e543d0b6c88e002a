"""Thresholds, AUC, entropies and the permutation test of a trend against naive twins, and coverage of the AUC."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from lethe.errors import BadValue
from lethe.statistics.two_sample import auc, auc_interval, fit_threshold, ks_test, trend
from studies.image_game.attacks import entropy, modified_entropy


def test_ks_keeps_its_precision_far_in_the_tail():
    """Complete separation: 2 of the binomially many arrangements."""
    got = ks_test(np.arange(100), np.arange(1000, 1100))
    assert got.statistic == 1
    assert got.p_value == pytest.approx(2 / math.comb(200, 100), rel=1e-12)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=12),
    st.lists(st.integers(0, 4), min_size=2, max_size=12),
)
def test_auc_interval_holds_its_value_and_is_symmetric(members, nonmembers):
    got = auc_interval(members, nonmembers)
    assert got.value == pytest.approx(auc(members, nonmembers))
    assert 0 <= got.lower <= got.value <= got.upper <= 1
    mirrored = auc_interval(nonmembers, members)
    assert mirrored.lower == pytest.approx(1 - got.upper, abs=1e-9)


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
        missed += not got.lower <= truth <= got.upper
    slack = 3 * np.sqrt(alpha * (1 - alpha) / runs)
    assert missed / runs <= alpha + slack


@pytest.mark.parametrize("bad", [[], [np.nan, 1.0]])
def test_bad_samples_are_refused(bad):
    for function in (ks_test, auc_interval):
        with pytest.raises(BadValue):
            function(bad, [1.0, 2.0])
        with pytest.raises(BadValue):
            function([1.0, 2.0], bad)


SCORES = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=25)


def naive_threshold(members, nonmembers):
    best, value = -1.0, None
    for v in [*members, *nonmembers]:
        accuracy = sum(m >= v for m in members) * len(nonmembers) + sum(n < v for n in nonmembers) * len(members)
        if accuracy > best:
            best, value = accuracy, v
    return value


@given(SCORES, SCORES)
def test_threshold_against_its_naive_twin(members, nonmembers):
    assert fit_threshold(members, nonmembers) == naive_threshold(members, nonmembers)


@given(SCORES, SCORES)
def test_auc_against_its_naive_twin(members, nonmembers):
    naive = np.mean([(m > n) + (m == n) / 2 for m in members for n in nonmembers])
    assert auc(members, nonmembers) == pytest.approx(naive)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6), st.data())
def test_entropies_against_their_naive_twins(weights, data):
    p = np.array(weights) / sum(weights)
    y = data.draw(st.integers(0, len(p) - 1))
    naive = -(1 - p[y]) * math.log(p[y]) - sum(p[j] * math.log(1 - p[j]) for j in range(len(p)) if j != y)
    assert modified_entropy([p], [y])[0] == pytest.approx(naive, abs=1e-12)
    assert entropy(p) == pytest.approx(-sum(x * math.log(x) for x in p))


def test_certainty_of_the_right_class_is_zero_and_of_the_wrong_one_is_finite():
    certain = np.array([[1.0, 0.0, 0.0]])
    assert modified_entropy(certain, [0])[0] == 0
    assert modified_entropy(certain, [1])[0] == pytest.approx(-2 * math.log(1e-30))
    assert entropy(certain)[0] == 0


@pytest.mark.parametrize(("members", "nonmembers"), [([], [1.0]), ([1.0], []), ([math.nan], [1.0])])
def test_scores_that_fit_nothing_are_refused(members, nonmembers):
    with pytest.raises(BadValue, match="scores"):
        fit_threshold(members, nonmembers)


def plain(x, y, groups):
    """Every permutation within the groups, by brute force."""
    places = [[i for i, one in enumerate(groups) if one == group] for group in dict.fromkeys(groups)]

    def s(values):
        return sum(
            np.sign(x[i] - x[j]) * np.sign(values[i] - values[j])
            for own in places
            for i, j in itertools.combinations(own, 2)
        )

    every = []
    for orders in itertools.product(*(itertools.permutations(own) for own in places)):
        values = list(y)
        for own, order in zip(places, orders, strict=True):
            for i, j in zip(own, order, strict=True):
                values[i] = y[j]
        every.append(s(values))
    return np.mean([one <= s(y) for one in every]), np.mean([one >= s(y) for one in every])


def test_the_p_values_are_those_of_all_permutations():
    rng = np.random.default_rng(0)
    for groups in ([0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 1, 1]):
        x, y = list(rng.integers(0, 4, 6)), list(rng.integers(0, 4, 6))  # ties
        found = trend(x, y, groups)
        falls, rises = plain(x, y, groups)
        assert found.p_falls == pytest.approx(falls, abs=0.02)
        assert found.p_rises == pytest.approx(rises, abs=0.02)


def test_tau_and_p_are_scipys():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=8), rng.normal(size=8)
    found, known = trend(x, y), kendalltau(x, y, alternative="greater", method="exact")
    assert found.tau == pytest.approx(known.statistic)
    assert found.p_rises == pytest.approx(known.pvalue, abs=0.02)


@pytest.mark.parametrize("ties", [False, True])
def test_a_true_null_is_rejected_at_most_as_often_as_said(ties):
    rng = np.random.default_rng(2)
    rejected = []
    for _ in range(400):
        y = rng.integers(0, 3, 9) if ties else rng.normal(size=9)
        rejected.append(trend(range(9), y, [0, 0, 0, 0, 0, 1, 1, 1, 1], permutations=199).p_falls <= 0.05)
    assert np.mean(rejected) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_no_order_is_no_evidence():
    found = trend([1, 1, 1], [3, 2, 1])
    assert (found.tau, found.p_falls, found.p_rises, found.points) == (None, 1.0, 1.0, 3)
    assert trend([], []).p_falls == 1.0


@pytest.mark.parametrize(
    ("x", "y", "groups"), [([1], [1, 2], None), ([1, 2], [1, float("nan")], None), ([1, 2], [1, 2], [0])]
)
def test_other_values_are_refused(x, y, groups):
    with pytest.raises(BadValue):
        trend(x, y, groups)
