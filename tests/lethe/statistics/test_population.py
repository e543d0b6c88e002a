"""Questions as a sample: coverage with the worst law searched, and ranks over pairs of runs."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from lethe.comparison.ranking import rank
from lethe.comparison.sides import Answers, Scored, Side
from lethe.statistics import betting, leak_rates
from lethe.statistics.bound import Covers
from lethe.statistics.bounds import binary_upper
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import CERTIFY, Rate
from lethe.statistics.many_prompts import population_ends, rank_ranges, share_interval
from lethe.statistics.mean_difference import mean_of_differences, population_difference
from tests.lethe.statistics.draws import allowed, clopper_pearson, tolerated

QUESTIONS = 24


def leaks(rng, shape, law):
    """The probability of each question: all alike, two kinds, or between."""
    kind, mean = law
    return {
        "alike": np.full(shape, mean),
        "two kinds": (rng.random(shape) < mean).astype(float),
        "rare": np.where(rng.random(shape) < 2 * mean, 0.5, 0.0),
        "between": rng.beta(mean, 1 - mean, shape),
    }[kind]


LAWS = [
    (kind, mean)
    for kind in ("alike", "two kinds", "rare", "between")
    for mean in (0.02, 0.08, 0.25, 0.5)
]


def missed(rng, law, answers, alpha, runs, side):
    """How often an end misses the mean, by bets and, for one answer, by Clopper-Pearson."""
    means = rng.binomial(answers, leaks(rng, (runs, QUESTIONS), law)) / answers
    values, true = (means, law[1]) if side == "upper" else (1 - means, 1 - law[1])
    counted = binary_upper(values.sum(axis=1), QUESTIONS, alpha) if answers == 1 else np.ones(runs)
    return max(int((ends < true).sum()) for ends in (betting.mean_upper(values, alpha), counted))


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_an_end_misses_at_most_at_alpha_under_the_worst_law(alpha):
    """The law that misses most often in a search is drawn again."""
    rng, runs = np.random.default_rng(0), 1000
    cases = [
        (law, answers, side) for law in LAWS for answers in (1, 4) for side in ("upper", "lower")
    ]
    worst = max(cases, key=lambda case: missed(rng, *case[:2], alpha, runs, case[2]))
    assert missed(rng, *worst[:2], alpha, 20_000, worst[2]) <= allowed(alpha, 20_000)


def test_both_ends_cover_the_population_where_an_interval_of_these_questions_does_not():
    rng, alpha, runs, misses, of_these = np.random.default_rng(1), 0.05, 80, 0, 0
    for _ in range(runs):
        scores = (
            (rng.random((8, QUESTIONS)) < leaks(rng, QUESTIONS, ("between", 0.3))).astype(float).T
        )
        low, high, _ = population_ends(scores.mean(axis=1), scores.mean(axis=1), alpha / 2)
        misses += not low <= 0.3 <= high
        these = share_interval(list(scores), alpha)
        of_these += not these.lower <= 0.3 <= these.upper
    assert misses <= allowed(alpha, runs) < of_these


def test_a_missing_score_widens_both_ends():
    whole, part = np.full(30, 0.5), np.r_[np.full(28, 0.5), 0, 0]
    low, high, _ = population_ends(part, np.r_[part[:28], 1, 1], 0.05)
    assert low < population_ends(whole, whole, 0.05)[0]
    assert high > population_ends(whole, whole, 0.05)[1]


def test_the_sign_test_is_mcnemars_and_the_clusters_are_questions():
    a, b = np.repeat([1.0, 0.0, 0.0], [3, 12, 15]), np.repeat([0.0, 1.0, 0.0], [3, 12, 15])
    found = population_difference(list(a[:, None]), list(b[:, None]), 0.05, binary=True)
    assert found.p_value == pytest.approx(binomtest(3, 15).pvalue)
    assert found.difference == pytest.approx(0.3)
    assert found.low <= found.difference <= found.high
    copies = population_difference(
        [np.repeat(v, 50) for v in a], [np.repeat(v, 50) for v in b], 0.05, binary=True
    )
    lost = [np.array([np.nan])]
    first, second = [*a[:-1, None], *lost], [*b[:-2, None], *lost, b[-1:]]
    gap = population_difference(first, second, 0.05, binary=True)
    assert gap.low < found.low
    assert gap.high > found.high
    assert (copies.low, copies.high) == (
        found.low,
        found.high,
    )  # copies of one answer are no evidence


@pytest.mark.parametrize("alpha", [0.01, 0.05])
@pytest.mark.parametrize(
    ("rise", "fall", "share"), [(0.01, 0.5, 0.1), (0.05, 0.5, 0.1), (0.5, 0.5, 0.5)]
)
def test_one_graded_answer_each_tests_the_average_and_not_the_number_of_rises(
    alpha, rise, fall, share
):
    """Most questions rise a little and a few fall a lot: the sign test finds a rise where the average falls."""
    rng, runs, false, a = np.random.default_rng(4), 200, 0, np.full((60, 1), 0.5)
    for _ in range(runs):
        b = a + np.where(rng.random(a.shape) < share, -fall, rise)
        found = mean_of_differences(list(a), list(b), alpha)
        false += found.low > rise * (1 - share) - fall * share
        assert (found.low > 0) == (found.p_above() <= alpha / 2)
    assert false <= allowed(alpha / 2, runs)
    shown = mean_of_differences(list(a), list(a + 0.3), alpha)
    assert 0 < shown.low <= 0.3 <= shown.high


@pytest.mark.parametrize("binary", [True, False])
def test_the_difference_covers_the_population(binary):
    rng, alpha, runs, misses, false = np.random.default_rng(2), 0.1, 60, 0, 0
    for _ in range(runs):
        first = rng.random(QUESTIONS) < 0.3
        a = first * (1.0 if binary else rng.random(QUESTIONS))
        b = (first ^ (rng.random(QUESTIONS) < 0.3)) * 1.0
        true = 0.3 * 0.7 + 0.7 * 0.3 - (0.3 if binary else 0.15)
        found = population_difference(list(a[:, None]), list(b[:, None]), alpha, binary)
        misses += not found.low <= true <= found.high
        same = population_difference(
            list(a[:, None]), list(rng.permutation(a)[:, None]), alpha, binary
        )
        false += same.p_value <= alpha
    assert misses <= allowed(alpha, runs)
    assert false <= allowed(alpha, runs)


def naive_ranges(above):
    """The ranks of each side over all orders that contradict no proved pair."""
    sides = len(above)
    orders = [
        order
        for order in permutations(range(sides))
        if not any(above[order[i], order[j]] for i, j in combinations(range(sides), 2))
    ]
    return [
        (1 + min(o.index(s) for o in orders), 1 + max(o.index(s) for o in orders))
        for s in range(sides)
    ]


@given(st.lists(st.integers(0, 5), min_size=3, max_size=5), st.integers(1, 3))
def test_ranges_of_ranks_are_those_of_all_orders(levels, gap):
    above = np.subtract.outer(levels, levels) >= gap
    assert rank_ranges(above) == naive_ranges(above)


def sides(*scores):
    return [
        Side(
            f"run {i}",
            "table",
            "score",
            {"": Scored({f"q{j}": Answers(row) for j, row in enumerate(own)})},
        )
        for i, own in enumerate(scores)
    ]


def test_copies_of_one_log_have_all_ranks_and_redraws_of_it_false_pairs_at_most_at_alpha():
    rng, alpha, runs, false, one_each = np.random.default_rng(3), 0.1, 30, np.zeros(2), 0
    for _ in range(runs):
        draws = rng.random((4, QUESTIONS, 6)) < rng.beta(0.5, 0.5, (QUESTIONS, 1))
        found = rank(sides(*draws.astype(float)), alpha)
        false += found.differ("difference") > 0, found.differ("difference_population") > 0
        coins = rng.random((3, 60, 1)) < rng.beta(2, 2, (60, 1))
        one_each += rank(sides(*coins.astype(float)), alpha).differ("difference_population") > 0
    assert (false <= allowed(alpha, runs)).all()
    assert one_each <= allowed(alpha, runs)
    draws = draws.astype(float)
    copies = rank(sides(*[draws[0]] * 4), alpha)
    assert copies.ranges("rank") == copies.ranges("rank_population") == [(1, 4)] * 4
    shifted = rank(sides(draws[0] * 0, draws[0], draws[0] * 0 + 1), alpha)
    assert shifted.ranges("rank_population") == [(1, 1), (2, 2), (3, 3)]


def share_exceeding(leaks, answers, tau, alpha, side, judge=None):
    return leak_rates.share_exceeding(Rate.of(leaks, answers, judge=judge), tau, alpha, side)


@given(
    st.integers(1, 40).flatmap(
        lambda r: st.tuples(st.just(r), st.lists(st.integers(0, r), min_size=1, max_size=30))
    )
)
def test_against_the_formulas_written_out(drawn):
    answers, leaks = drawn
    tau, alpha = 0.2, 0.05
    bounds = []
    for level, share in CERTIFY.items():
        not_certified = sum(clopper_pearson(k, answers, level)[1] > tau for k in leaks)
        bounds.append(
            min(1, clopper_pearson(not_certified, len(leaks), share * alpha)[1] / (1 - level))
        )
    assert sum(CERTIFY.values()) == 1
    detected = sum(clopper_pearson(k, answers, 0.01)[0] > tau for k in leaks)
    above = share_exceeding(leaks, answers, tau, alpha, "upper")
    below = share_exceeding(leaks, answers, tau, alpha, "lower")
    assert above.value == pytest.approx(min(bounds))
    assert below.value == pytest.approx(
        max(0, (clopper_pearson(detected, len(leaks), alpha)[0] - 0.01) / 0.99)
    )
    assert (above.covers, above.n) == (Covers.PROMPTS_OF_LANGUAGE, len(leaks))


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("error", [0.0, 0.05, 0.2])
def test_coverage_where_a_judge_who_errs_gives_the_leaks(error, side):
    """The bound on true leaks keeps its level; the share of prompts by the verdicts alone misses at an error of 20%."""
    probabilities, leaks = np.array([0.6, 0.25, 0.15]), np.array([0.02, 0.2, 0.35])
    tau, alpha, prompts, answers, labelled, runs = 0.2, 0.05, 60, 64, 400, 600
    truth = probabilities[leaks > tau].sum()
    rng = np.random.default_rng([14, round(100 * error)])
    called = rng.binomial(
        answers,
        (leaks * (1 - error) + (1 - leaks) * error)[
            rng.choice(3, (runs, prompts), p=probabilities)
        ],
    )
    found, naive = [], []
    for counts in called:
        judge = Calibration(
            labelled, rng.binomial(labelled, 1 - error), labelled, rng.binomial(labelled, error)
        )
        found.append(share_exceeding(counts, answers, tau, alpha, side, judge).value)
        naive.append(share_exceeding(counts, answers, tau, alpha, side).value)
    missed = (
        (np.array(found) < truth - 1e-12) if side == "upper" else (np.array(found) > truth + 1e-12)
    )
    assert missed.mean() <= tolerated(alpha, runs)
    if error == 0.2 and side == "lower":
        assert np.mean(np.array(naive) > truth) > 5 * alpha


def test_a_judge_who_separates_nothing_bounds_nothing():
    blind = Calibration(50, 25, 50, 25)
    assert share_exceeding([0] * 30, 24, 0.2, 0.05, "upper", blind).value == 1
    wrong = Calibration(50, 5, 50, 45)
    assert share_exceeding([24] * 30, 24, 0.2, 0.05, "lower", wrong).value == 0
    sharp = Calibration(10**9, 10**9, 10**9, 0)
    error = sharp.error(0.05 / 3)
    assert error.sensitivity[0] > 1 - 1e-8
    for side in ("upper", "lower"):
        own = share_exceeding([0] * 25 + [20] * 5, 24, 0.2, 0.15, side, sharp).value
        assert own == pytest.approx(share_exceeding([0] * 25 + [20] * 5, 24, 0.2, 0.05, side).value)


def test_sides_seeded_apart_have_a_narrower_difference():
    rng = np.random.default_rng(5)
    a, b = (list((rng.random((20, 40)) < share) * 1.0) for share in (0.1, 0.4))
    apart, joint = (
        mean_of_differences(a, b, 0.05, True, draws=draws) for draws in ("apart", "any")
    )
    assert joint.low < apart.low < apart.difference < apart.high < joint.high
    assert (apart.low, apart.high) == pytest.approx((0.210846, 0.319993), abs=1e-6)
    pairs = mean_of_differences(a, b, 0.05, True, draws="pairs")
    assert (pairs.low, pairs.high) == pytest.approx((0.207011, 0.320411), abs=1e-6)
