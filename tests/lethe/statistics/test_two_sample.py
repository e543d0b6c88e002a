"""Thresholds, AUC, entropies and the permutation test of a trend against naive twins, and coverage of the AUC."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, kendalltau

from lethe.statistics.mean_difference import difference, mean_of_differences
from lethe.statistics.planning import answers_to_see, chance
from lethe.statistics.two_sample import auc, auc_interval, fit_threshold, ks_test, trend
from studies.image_game.play import entropy, modified_entropy
from tests.lethe.statistics.draws import allowed, clopper_pearson, tolerated


def test_ks_keeps_its_precision_far_in_the_tail():
    """Complete separation: 2 of the binomially many arrangements."""
    got = ks_test(np.arange(100), np.arange(1000, 1100))
    assert got.statistic == 1
    assert got.p_value == pytest.approx(2 / math.comb(200, 100), rel=1e-12)
    assert got.method == "exact"
    assert (
        ks_test(np.arange(7), np.arange(7) + 0.5).method == "asymptotic"
    )  # the exact sum rounds above 1


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
    assert missed / runs <= tolerated(alpha, runs)


SCORES = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=25)


def naive_threshold(members, nonmembers):
    best, value = -1.0, None
    for v in [*members, *nonmembers]:
        accuracy = sum(m >= v for m in members) * len(nonmembers) + sum(
            n < v for n in nonmembers
        ) * len(members)
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
    naive = -(1 - p[y]) * math.log(p[y]) - sum(
        p[j] * math.log(1 - p[j]) for j in range(len(p)) if j != y
    )
    assert modified_entropy([p], [y])[0] == pytest.approx(naive, abs=1e-12)
    assert entropy(p) == pytest.approx(-sum(x * math.log(x) for x in p))


def test_certainty_of_the_right_class_is_zero_and_of_the_wrong_one_is_finite():
    certain = np.array([[1.0, 0.0, 0.0]])
    assert modified_entropy(certain, [0])[0] == 0
    assert modified_entropy(certain, [1])[0] == pytest.approx(-2 * math.log(1e-30))
    assert entropy(certain)[0] == 0


def plain(x, y, groups):
    """Every permutation within the groups, by brute force."""
    places = [
        [i for i, one in enumerate(groups) if one == group] for group in dict.fromkeys(groups)
    ]

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
        rejected.append(
            trend(range(9), y, [0, 0, 0, 0, 0, 1, 1, 1, 1], permutations=199).p_falls <= 0.05
        )
    assert np.mean(rejected) < tolerated(0.05, 400)


def test_no_order_is_no_evidence():
    found = trend([1, 1, 1], [3, 2, 1])
    assert (found.tau, found.p_falls, found.p_rises, found.points) == (None, 1.0, 1.0, 3)
    assert trend([], []).p_falls == 1.0


ALPHA = 0.1


def coin(rng, p, n):
    return (rng.random(n) < p).astype(float)


def naive(ones_a, n_a, ones_b, n_b):
    """The p-value of 0/1 scores over a grid of common means: the least of four binomial tails, times 4."""
    means = np.linspace(0, 1, 4001)
    tails = [
        binom.cdf(ones_a, n_a, means),
        binom.sf(ones_a - 1, n_a, means),
        binom.cdf(ones_b, n_b, means),
        binom.sf(ones_b - 1, n_b, means),
    ]
    toward = (tails[0], tails[3]) if ones_b / n_b >= ones_a / n_a else (tails[1], tails[2])
    return min(1.0, 4 * np.minimum(*toward).max())


@pytest.mark.parametrize(
    ("ones_a", "n_a", "ones_b", "n_b"),
    [(0, 50, 9, 40), (30, 60, 12, 60), (5, 20, 6, 30), (3, 9, 0, 8)],
)
def test_the_p_value_is_the_naive_one_and_inverts_the_interval(ones_a, n_a, ones_b, n_b):
    a, b = (
        np.repeat([1.0, 0.0], [ones_a, n_a - ones_a]),
        np.repeat([1.0, 0.0], [ones_b, n_b - ones_b]),
    )
    found = difference(a, b, ALPHA, binary=True)
    assert found.p_value == pytest.approx(naive(ones_a, n_a, ones_b, n_b), rel=0.02)
    for level, excludes in ((found.p_value * 1.02, True), (found.p_value * 0.98, False)):
        if level <= 0.5:
            got = difference(a, b, level, binary=True)
            assert (got.low > 0 or got.high < 0) == excludes
    (lower, _), (_, upper) = (
        clopper_pearson(*of, ALPHA / 4) for of in ((ones_b, n_b), (ones_a, n_a))
    )
    assert found.low == pytest.approx(lower - upper)


def test_the_p_value_and_the_interval_agree_for_graded_scores():
    rng = np.random.default_rng(0)
    for shift in (1.0, 1.6, 3.0):
        for seed in range(4):
            a, b = rng.beta(1, 4, 40 + seed), rng.beta(shift, 4, 60)
            found = difference(a, b, ALPHA)
            assert (found.p_value <= ALPHA) == (found.low > 0 or found.high < 0)
            back = difference(b, a, ALPHA)
            assert (back.low, back.high) == pytest.approx((-found.high, -found.low))
            assert back.p_value == pytest.approx(found.p_value, rel=1e-6)


def test_a_missing_score_counts_against_each_side():
    a, b = np.zeros(40), np.ones(40)
    whole = difference(a, b, ALPHA, binary=True)
    a[:4] = np.nan
    part = difference(a, b, ALPHA, binary=True)
    assert part.low < whole.low
    assert part.high == whole.high
    assert part.p_value > whole.p_value
    assert part.a == 0
    nothing = difference(np.full(5, np.nan), b, ALPHA, binary=True)
    assert np.isnan(nothing.a)
    assert nothing.p_value == 1
    assert nothing.low <= 0 <= nothing.high


def test_models_that_share_random_numbers_are_not_pooled():
    rng, false, pooled, runs, models = np.random.default_rng(8), 0, 0, 80, 12
    names = [name for name in "abcdefghijkl" for _ in range(3)]
    for _ in range(runs):
        one, other = ([coin(rng, 0.3, 20) for _ in range(3)] * models for _ in range(2))
        false += mean_of_differences(one, other, ALPHA, True, names).p_value <= ALPHA
        pooled += mean_of_differences(one, other, ALPHA, True).p_value <= ALPHA
    assert false <= allowed(ALPHA, runs)
    assert pooled > allowed(ALPHA, runs)


@pytest.mark.parametrize("draws", ["apart", "pairs"])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_recorded_seeds_narrow_the_interval_at_the_same_level(draws, binary, alpha):
    """Null data and a true difference, with independent sides or with one random number a pair."""
    rng, misses, false, narrower, runs = np.random.default_rng(9), 0, 0, 0, 40 if binary else 8
    for _ in range(runs):
        u = rng.random(120)
        v = rng.random(150 if binary else 120) if draws == "apart" else u
        a, b, same = (u < 0.3, v < 0.4, v < 0.3) if binary else (u**2 / 2, v**2 * 0.7, v**2 / 2)
        truth = 0.1 if binary else 0.2 / 3
        a, b, same = (own.astype(float) for own in (a, b, same))
        found = difference(a, b, alpha, binary, draws=draws)
        narrower += (
            found.high - found.low < (wide := difference(a, b, alpha, binary)).high - wide.low
        )
        misses += not found.low <= truth <= found.high
        false += difference(a, same, alpha, binary, draws=draws).p_value <= alpha
        if binary or draws == "pairs":
            assert (found.p_value <= alpha) == (
                found.low > 0 or found.high < 0
            ) or 0.98 < found.p_value / alpha < 1.02
    assert misses <= allowed(alpha, runs)
    assert false <= allowed(alpha, runs)
    assert narrower >= 0.8 * runs


def test_planned_answers_have_the_planned_power():
    rng = np.random.default_rng(12)
    n = answers_to_see(0.1, 0.2, power=0.8, alpha=0.05, prompts=1, apart=True)
    shown = [
        difference(coin(rng, 0.1, n), coin(rng, 0.3, n), 0.05, True, draws="apart").p_above()
        <= 0.025
        for _ in range(200)
    ]
    assert 0.7 < np.mean(shown) < 0.9
    assert chance(n, 0.1, 0.2, 0.025, apart=False) < 0.8
    assert (
        chance(n, 0.1, 0.2, 0.025, apart=True) >= 0.8 > chance(n - 1, 0.1, 0.2, 0.025, apart=True)
    )
    assert answers_to_see(0.1, 0.2, 0.8, 0.05, 30, True) > n
