"""Thresholds, AUC, entropies and the permutation test of a trend against naive twins, and coverage of the AUC."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

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
    found = ks_test(np.arange(100), np.arange(1000, 1100))

    assert found.statistic == 1
    assert found.p_value == pytest.approx(2 / math.comb(200, 100), rel=1e-12)
    assert found.method == "exact"


def test_ks_is_asymptotic_where_the_exact_sum_rounds_above_1():
    assert ks_test(np.arange(7), np.arange(7) + 0.5).method == "asymptotic"


levels = st.lists(st.integers(0, 4), min_size=2, max_size=12)


@settings(max_examples=40)
@given(levels, levels)
def test_auc_interval_holds_its_value_and_is_symmetric(members, nonmembers):
    found = auc_interval(members, nonmembers)
    mirrored = auc_interval(nonmembers, members)

    assert found.value == pytest.approx(auc(members, nonmembers))
    assert 0 <= found.lower <= found.value <= found.upper <= 1
    assert mirrored.lower == pytest.approx(1 - found.upper, abs=1e-9)


@dataclass(frozen=True)
class TwoLaws:
    """Draws of both sides, each by (generator, number), and the true AUC."""

    members: Callable
    nonmembers: Callable
    auc: float


def normal(rng, n):
    return rng.normal(size=n)


TWO_LAWS = {
    "null": TwoLaws(normal, normal, 0.5),
    "strong": TwoLaws(
        lambda rng, n: rng.exponential(9, n), lambda rng, n: rng.exponential(1, n), 0.9
    ),
    "ties": TwoLaws(
        lambda rng, n: rng.binomial(1, 0.7, n), lambda rng, n: rng.binomial(1, 0.3, n), 0.7
    ),
    "spread": TwoLaws(lambda rng, n: rng.normal(0, 10, n), normal, 0.5),
}


@pytest.mark.parametrize("case", TWO_LAWS)
@pytest.mark.parametrize("sizes", [(5, 50), (40, 40)])
def test_auc_interval_covers(case, sizes):
    laws = TWO_LAWS[case]
    n_members, n_nonmembers = sizes
    rng = np.random.default_rng(11)
    runs = 800
    alpha = 0.1

    missed = 0
    for _ in range(runs):
        members = laws.members(rng, n_members)
        nonmembers = laws.nonmembers(rng, n_nonmembers)
        found = auc_interval(members, nonmembers, alpha)
        missed += not found.lower <= laws.auc <= found.upper

    assert missed / runs <= tolerated(alpha, runs)


SCORES = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=25)


def naive_threshold(members, nonmembers):
    """The first score with the largest balanced accuracy."""
    best = -1.0
    threshold = None
    for score in [*members, *nonmembers]:
        members_found = sum(member >= score for member in members)
        others_found = sum(other < score for other in nonmembers)
        accuracy = members_found * len(nonmembers) + others_found * len(members)
        if accuracy > best:
            best = accuracy
            threshold = score
    return threshold


@given(SCORES, SCORES)
def test_threshold_against_its_naive_twin(members, nonmembers):
    assert fit_threshold(members, nonmembers) == naive_threshold(members, nonmembers)


@given(SCORES, SCORES)
def test_auc_against_its_naive_twin(members, nonmembers):
    wins = []
    for member, other in itertools.product(members, nonmembers):
        wins.append((member > other) + (member == other) / 2)

    assert auc(members, nonmembers) == pytest.approx(np.mean(wins))


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6), st.data())
def test_modified_entropy_against_its_naive_twin(weights, data):
    probabilities = np.array(weights) / sum(weights)
    label = data.draw(st.integers(0, len(probabilities) - 1))
    naive = -(1 - probabilities[label]) * math.log(probabilities[label])
    for place, probability in enumerate(probabilities):
        if place != label:
            naive -= probability * math.log(1 - probability)

    assert modified_entropy([probabilities], [label])[0] == pytest.approx(naive, abs=1e-12)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6))
def test_entropy_against_its_naive_twin(weights):
    probabilities = np.array(weights) / sum(weights)
    naive = -sum(probability * math.log(probability) for probability in probabilities)

    assert entropy(probabilities) == pytest.approx(naive)


CERTAIN = np.array([[1.0, 0.0, 0.0]])


@pytest.mark.parametrize(("label", "value"), [(0, 0), (1, -2 * math.log(1e-30))])
def test_certainty_of_the_right_class_is_zero_and_of_the_wrong_one_is_finite(label, value):
    assert modified_entropy(CERTAIN, [label])[0] == pytest.approx(value, abs=0)


def test_certainty_has_no_entropy():
    assert entropy(CERTAIN)[0] == 0


def naive_trend(x, y, groups):
    """(p_falls, p_rises) over every permutation within the groups, by brute force."""
    members_of_group = {}
    for place, group in enumerate(groups):
        members_of_group.setdefault(group, []).append(place)

    def kendall_sum(values):
        total = 0
        for members in members_of_group.values():
            for i, j in itertools.combinations(members, 2):
                total += np.sign(x[i] - x[j]) * np.sign(values[i] - values[j])
        return total

    sums = []
    orders_of_group = [itertools.permutations(members) for members in members_of_group.values()]
    for orders in itertools.product(*orders_of_group):
        values = list(y)
        for members, order in zip(members_of_group.values(), orders, strict=True):
            for place, source in zip(members, order, strict=True):
                values[place] = y[source]
        sums.append(kendall_sum(values))
    observed = kendall_sum(y)
    return np.mean(np.array(sums) <= observed), np.mean(np.array(sums) >= observed)


@pytest.mark.parametrize("groups", [[0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 1, 1]])
def test_the_p_values_are_those_of_all_permutations(groups):
    rng = np.random.default_rng(0)
    x = list(rng.integers(0, 4, 6))
    y = list(rng.integers(0, 4, 6))  # ties
    falls, rises = naive_trend(x, y, groups)

    found = trend(x, y, groups)

    assert found.p_falls == pytest.approx(falls, abs=0.02)
    assert found.p_rises == pytest.approx(rises, abs=0.02)


def test_tau_and_p_are_scipys():
    rng = np.random.default_rng(1)
    x = rng.normal(size=8)
    y = rng.normal(size=8)
    known = kendalltau(x, y, alternative="greater", method="exact")

    found = trend(x, y)

    assert found.tau == pytest.approx(known.statistic)
    assert found.p_rises == pytest.approx(known.pvalue, abs=0.02)


@pytest.mark.seconds
@pytest.mark.parametrize("ties", [False, True])
def test_a_true_null_is_rejected_at_most_as_often_as_said(ties):
    rng = np.random.default_rng(2)
    groups = [0, 0, 0, 0, 0, 1, 1, 1, 1]

    rejected = 0
    for _ in range(400):
        y = rng.integers(0, 3, 9) if ties else rng.normal(size=9)
        rejected += trend(range(9), y, groups, permutations=199).p_falls <= 0.05

    assert rejected / 400 < tolerated(0.05, 400)


def test_no_order_is_no_evidence():
    found = trend([1, 1, 1], [3, 2, 1])

    assert (found.tau, found.p_falls, found.p_rises, found.points) == (None, 1.0, 1.0, 3)


def test_no_points_are_no_evidence():
    assert trend([], []).p_falls == 1.0


ALPHA = 0.1


def coin(rng, p, n):
    return (rng.random(n) < p).astype(float)


def naive_p_value(ones_a, n_a, ones_b, n_b):
    """The p-value of 0/1 scores over a grid of common means: the least of four binomial tails, times 4."""
    means = np.linspace(0, 1, 4001)
    if ones_b / n_b >= ones_a / n_a:
        tail_a = binom.cdf(ones_a, n_a, means)
        tail_b = binom.sf(ones_b - 1, n_b, means)
    else:
        tail_a = binom.sf(ones_a - 1, n_a, means)
        tail_b = binom.cdf(ones_b, n_b, means)
    return min(1.0, 4 * np.minimum(tail_a, tail_b).max())


COUNTS = pytest.mark.parametrize(
    ("ones_a", "n_a", "ones_b", "n_b"),
    [(0, 50, 9, 40), (30, 60, 12, 60), (5, 20, 6, 30), (3, 9, 0, 8)],
)


def scores_of(ones, n):
    return np.repeat([1.0, 0.0], [ones, n - ones])


@COUNTS
def test_the_p_value_is_the_naive_one(ones_a, n_a, ones_b, n_b):
    found = difference(scores_of(ones_a, n_a), scores_of(ones_b, n_b), ALPHA, binary=True)

    assert found.p_value == pytest.approx(naive_p_value(ones_a, n_a, ones_b, n_b), rel=0.02)


@COUNTS
@pytest.mark.parametrize(("factor", "excludes"), [(1.02, True), (0.98, False)])
def test_the_p_value_inverts_the_interval(ones_a, n_a, ones_b, n_b, factor, excludes):
    a = scores_of(ones_a, n_a)
    b = scores_of(ones_b, n_b)
    level = difference(a, b, ALPHA, binary=True).p_value * factor
    if level > 0.5:
        return  # no interval has such a level

    found = difference(a, b, level, binary=True)

    assert (found.low > 0 or found.high < 0) == excludes


@COUNTS
def test_the_low_end_is_between_clopper_pearson_ends(ones_a, n_a, ones_b, n_b):
    _, upper_a = clopper_pearson(ones_a, n_a, ALPHA / 4)
    lower_b, _ = clopper_pearson(ones_b, n_b, ALPHA / 4)

    found = difference(scores_of(ones_a, n_a), scores_of(ones_b, n_b), ALPHA, binary=True)

    assert found.low == pytest.approx(lower_b - upper_a)


def graded_sides():
    """Twelve pairs of graded sides, alike and further and further apart."""
    rng = np.random.default_rng(0)
    sides = []
    for shift, more in itertools.product((1.0, 1.6, 3.0), range(4)):
        a = rng.beta(1, 4, 40 + more)
        sides.append((a, rng.beta(shift, 4, 60)))
    return sides


def test_the_p_value_and_the_interval_agree_for_graded_scores():
    for a, b in graded_sides():
        found = difference(a, b, ALPHA)

        assert (found.p_value <= ALPHA) == (found.low > 0 or found.high < 0)


def test_the_difference_of_graded_scores_the_other_way_round_is_its_mirror_image():
    for a, b in graded_sides():
        found = difference(a, b, ALPHA)
        mirrored = difference(b, a, ALPHA)

        assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))
        assert mirrored.p_value == pytest.approx(found.p_value, rel=1e-6)


def test_a_missing_score_counts_against_each_side():
    a = np.zeros(40)
    b = np.ones(40)
    whole = difference(a, b, ALPHA, binary=True)
    a[:4] = np.nan

    found = difference(a, b, ALPHA, binary=True)

    assert found.low < whole.low
    assert found.high == whole.high
    assert found.p_value > whole.p_value
    assert found.a == 0


def test_a_side_without_a_score_shows_nothing():
    found = difference(np.full(5, np.nan), np.ones(40), ALPHA, binary=True)

    assert np.isnan(found.a)
    assert found.p_value == 1
    assert found.low <= 0 <= found.high


def test_models_that_share_random_numbers_are_not_pooled():
    rng = np.random.default_rng(8)
    runs = 80
    models = 12
    names = [name for name in "abcdefghijkl" for _ in range(3)]

    false = 0
    false_if_pooled = 0
    for _ in range(runs):
        a = [coin(rng, 0.3, 20) for _ in range(3)] * models
        b = [coin(rng, 0.3, 20) for _ in range(3)] * models
        false += mean_of_differences(a, b, ALPHA, True, names).p_value <= ALPHA
        false_if_pooled += mean_of_differences(a, b, ALPHA, True).p_value <= ALPHA

    assert false <= allowed(ALPHA, runs)
    assert false_if_pooled > allowed(ALPHA, runs)


@dataclass(frozen=True)
class Trial:
    """Scores of three sides: b has the larger mean, null the law of a."""

    a: np.ndarray
    b: np.ndarray
    null: np.ndarray

    @classmethod
    def draw(cls, rng, draws: str, binary: bool) -> "Trial":
        """Draw independent sides, or both from one random number a pair."""
        u = rng.random(120)
        v = u
        if draws == "apart":
            v = rng.random(150 if binary else 120)
        if binary:
            return cls((u < 0.3) * 1.0, (v < 0.4) * 1.0, (v < 0.3) * 1.0)
        return cls(u**2 / 2, v**2 * 0.7, v**2 / 2)


@pytest.mark.seconds
@pytest.mark.parametrize("draws", ["apart", "pairs"])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_recorded_seeds_narrow_the_interval_at_the_same_level(draws, binary, alpha):
    rng = np.random.default_rng(9)
    runs = 40 if binary else 8
    true = 0.1 if binary else 0.2 / 3

    misses = 0
    false = 0
    narrower = 0
    for _ in range(runs):
        trial = Trial.draw(rng, draws, binary)
        found = difference(trial.a, trial.b, alpha, binary, draws=draws)
        of_any_draws = difference(trial.a, trial.b, alpha, binary)
        null = difference(trial.a, trial.null, alpha, binary, draws=draws)
        narrower += found.high - found.low < of_any_draws.high - of_any_draws.low
        misses += not found.low <= true <= found.high
        false += null.p_value <= alpha
        if binary or draws == "pairs":
            agrees = (found.p_value <= alpha) == (found.low > 0 or found.high < 0)
            assert agrees or 0.98 < found.p_value / alpha < 1.02

    assert misses <= allowed(alpha, runs)
    assert false <= allowed(alpha, runs)
    assert narrower >= 0.8 * runs


def planned_answers():
    return answers_to_see(0.1, 0.2, power=0.8, alpha=0.05, prompts=1, apart=True)


@pytest.mark.seconds
def test_planned_answers_have_the_planned_power():
    rng = np.random.default_rng(12)
    n = planned_answers()

    shown = 0
    for _ in range(200):
        a = coin(rng, 0.1, n)
        found = difference(a, coin(rng, 0.3, n), 0.05, True, draws="apart")
        shown += found.p_above() <= 0.025

    assert 0.7 < shown / 200 < 0.9


def test_planned_answers_are_the_fewest():
    n = planned_answers()

    planned = chance(n, 0.1, 0.2, 0.025, apart=True)

    assert planned >= 0.8 > chance(n - 1, 0.1, 0.2, 0.025, apart=True)


def test_answers_planned_for_seeds_apart_do_not_suffice_for_any():
    assert chance(planned_answers(), 0.1, 0.2, 0.025, apart=False) < 0.8


def test_more_prompts_need_more_answers():
    assert answers_to_see(0.1, 0.2, 0.8, 0.05, 30, True) > planned_answers()
