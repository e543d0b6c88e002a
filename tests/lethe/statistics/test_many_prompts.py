"""Claims over many prompts, leak@k and pass^k, curves by attack budget: formulas, exact twins, coverage, edges."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import bdtr, bdtrc
from scipy.stats import binom, hypergeom

from lethe.errors import BadValue
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.counts import (
    at_least_once,
    labelled_average,
    random_labels,
    unbiased,
    with_lost,
)
from lethe.statistics.leak_rates import QUERIES, SUBSETS, Rate, pass_hat_k
from lethe.statistics.many_prompts import (
    Counted,
    Shares,
    band,
    distinct_share_interval,
    every_prompt_under,
    half_life,
    holm,
    mean_interval,
    pooled,
    pooled_average,
    share_above,
    share_interval,
    within_variance_interval,
    worst_prompt,
)
from tests.lethe.statistics.coverage import many_misses
from tests.lethe.statistics.draws import tolerated


def uppers_of(*values):
    uppers = []
    for value in values:
        if value is None:
            uppers.append(None)
            continue
        upper = Bound(value, "upper", 0.01, Covers.ONE_PROMPT, Assumes.DRAWS, "m", 9)
        uppers.append(upper)
    return uppers


def test_the_worst_prompt_is_the_first_with_the_largest_bound():
    place, claim = worst_prompt(uppers_of(0.1, None, 0.4, 0.4, 0.2))

    assert place == 2
    assert (claim.value, claim.covers, claim.alpha) == (0.4, Covers.WORST_PROMPT, 0.01)


@pytest.mark.parametrize(("threshold", "holds"), [(0.4, True), (0.39, False)])
def test_every_prompt_is_under_what_its_worst_is_under(threshold, holds):
    found, claim = every_prompt_under(uppers_of(0.1, 0.4), threshold)

    assert found == holds
    assert claim.value == threshold
    assert claim.covers == Covers.EVERY_PROMPT


@pytest.mark.parametrize(("side", "end"), [("upper", binary_upper), ("lower", binary_lower)])
def test_the_pool_is_clopper_pearson_on_the_sum(side, end):
    claim = pooled_average(np.array([0, 2, 1]), 10, 0.05, side)

    assert claim.value == pytest.approx(float(end(3, 30, 0.05)))
    assert (claim.covers, claim.side, claim.n) == (Covers.AVERAGE, side, 30)


def test_the_pool_is_an_upper_end_where_no_side_is_named():
    counts = np.array([0, 2, 1])

    assert pooled_average(counts, 10, 0.05) == pooled_average(counts, 10, 0.05, "upper")


def test_questions_with_equally_many_answers_are_pooled():
    assert pooled([0, 2, 1], [10] * 3, 0.25) == pooled_average([0, 2, 1], 10, 0.25)


@pytest.mark.parametrize(
    ("counts", "n", "alpha"),
    [
        ([0, 2, 1], [10] * 3, 0.26),
        ([0, 2, 1], [10, 10, 11], 0.05),
        ([0, None, 1], [10] * 3, 0.05),
        ([], [], 0.05),
    ],
)
def test_nothing_is_pooled_where_the_pooled_rule_does_not_hold(counts, n, alpha):
    assert pooled(counts, n, alpha) is None


@pytest.mark.parametrize(
    ("p_values", "certified"),
    [
        # .004 <= .05/4, .013 <= .05/3, .02 <= .05/2, .2 > .05
        ([0.2, 0.02, 0.004, 0.013], [False, True, True, True]),
        # .013 > .05/4 ends the list at once, whatever follows
        ([0.013, 0.013, 0.02, 0.02], [False] * 4),
        ([0.001, 0.002], [True, True]),
    ],
)
def test_holm_by_hand(p_values, certified):
    found, claim = holm(np.array(p_values), 0.1, 0.05)

    assert found.tolist() == certified
    assert (claim.value, claim.alpha, claim.covers) == (0.1, 0.05, Covers.CERTIFIED)


def test_false_statements_over_many_prompts_stay_under_alpha():
    """40 prompts at once with known truth: each claim is wrong in at most alpha of the runs."""
    for name, share in many_misses(60, 0.05, 400, seed=7):
        assert share <= tolerated(0.05, 400), name


def test_the_plain_table_over_many_prompts_misses_more_often():
    """The control: 40 ends at alpha, none of them corrected for the others."""
    rates = np.repeat([0.1, 0.02], 20)
    hits = np.random.default_rng(7).binomial(60, rates, (400, 40))

    missed = (binary_upper(hits, 60, 0.05) < rates).any(axis=1)

    assert np.mean(missed) > 4 * 0.05


def curve_of(*hits):
    counts = []
    for budget, count in zip((0, 1, 2, 4), hits, strict=True):
        counts.append(Counted(budget, count, count, 200, True))
    return band(counts, 0.05)


@pytest.mark.parametrize(
    ("hits", "earliest", "estimate", "latest"),
    [((2, 40, 95, 140), 2, 2, 4), ((2, 3, 4, 5), None, None, None)],
)
def test_half_life_compares_with_half_of_the_reference(hits, earliest, estimate, latest):
    reference = band([Counted(0, 180, 180, 200, True)], 0.05)[0]

    found = half_life(curve_of(*hits), reference)

    assert (found.earliest, found.estimate, found.latest) == (earliest, estimate, latest)


def test_a_missing_score_is_a_leak_above_and_none_below():
    (with_missing,) = band([Counted(0, 10, 30, 100, True)], 0.05)
    (without,) = band([Counted(0, 10, 10, 100, True)], 0.05)

    assert with_missing.upper.value > without.upper.value
    assert with_missing.lower.value == without.lower.value


def naive_bernstein_width(values, alpha):
    """The empirical Bernstein inequality, with the variance over all pairs."""
    n = len(values)
    differences = np.subtract.outer(values, values)
    variance = np.square(differences).sum() / (2 * n * (n - 1))
    log = math.log(2 / alpha)
    return math.sqrt(2 * variance * log / n) + 7 * log / (3 * (n - 1))


def squares_of_pairs(groups):
    """Squared differences of each two consecutive draws; an odd draw at the end is left out."""
    squares = []
    for scores in groups:
        for place in range(0, len(scores) - 1, 2):
            squares.append((scores[place] - scores[place + 1]) ** 2)
    return squares


def test_mean_interval_is_bernstein_with_a_bounded_variance():
    groups = [[0.1, 0.4, 0.2, 0.3, 0.9], [0.6, 0.6, 0.5, 0.9, 0.1]]
    alpha = 0.2
    squares = squares_of_pairs(groups)
    variance = (sum(squares) / 4 + naive_bernstein_width(squares, alpha / 4)) / 2
    log = math.log(4 / alpha)
    width = math.sqrt(2 * min(variance, 0.25) * log / 10) + log / 30

    interval = mean_interval(groups, alpha)

    assert interval.value == pytest.approx(0.46)
    assert interval.lower == pytest.approx(max(0, 0.46 - width))
    assert interval.upper == pytest.approx(min(1, 0.46 + width))
    assert (interval.n, interval.alpha) == (10, alpha)


def test_variance_interval_is_the_empirical_bernstein_inequality_on_pairs():
    groups = [np.linspace(0, 1, 41), np.linspace(0.3, 0.4, 41)]
    squares = squares_of_pairs(groups)
    groups[1][0] = np.nan
    squares[20] = 1.0  # the most that a missing draw may differ
    width = naive_bernstein_width(squares, 0.2 / 2)

    interval = within_variance_interval(groups, 0.2)

    assert interval.value == pytest.approx((sum(squares) - 1) / 39 / 2)
    assert interval.upper == pytest.approx((sum(squares) / 40 + width) / 2)


@pytest.mark.parametrize(
    ("questions", "n", "ones"),
    [(3, 4, 0), (3, 4, 1), (3, 4, 5), (3, 4, 11), (3, 4, 12), (1, 6, 1), (1, 6, 5)],
)
def test_ends_at_many_levels_are_those_of_the_intervals(questions, n, ones):
    draws = np.zeros(questions * n)
    draws[:ones] = 1.0
    shares = Shares(draws.reshape(questions, n))
    levels = np.array([1e-90, 1e-7, 1e-6, 0.01, 0.25])

    intervals = [shares.interval(2 * level) for level in levels.tolist()]

    assert shares.uppers(levels).tolist() == [interval.upper for interval in intervals]
    assert shares.lowers(levels).tolist() == [interval.lower for interval in intervals]


def test_a_level_at_which_no_interval_is_proven_has_no_end():
    shares = Shares(np.zeros((2, 2)))

    with pytest.raises(BadValue):
        shares.uppers(np.array([0.01, 0.26]))


def test_share_interval_is_clopper_pearson_on_the_pooled_count():
    scores = np.zeros((5, 20))
    scores[0, :7] = 1

    interval = share_interval(scores, 0.05)

    assert bdtr(7, 100, interval.upper) == pytest.approx(0.05 / 2)
    assert bdtrc(6, 100, interval.lower) == pytest.approx(0.05 / 2)


@pytest.mark.parametrize(("found", "n"), [(40, 400), (3, 200), (200, 200)])
def test_distinct_share_solves_the_two_inequalities(found, n):
    log = math.log(2 / 0.05)
    most = found + log + math.sqrt(log**2 + 2 * log * found)

    interval = distinct_share_interval([found], [n], 0.05)

    fewest = interval.lower * n
    gap = found - fewest
    probability_below = math.exp(-(gap**2) / (2 * fewest + 2 * gap / 3))
    probability_above = math.exp(-((most - found) ** 2) / (2 * most))
    assert probability_below == pytest.approx(0.025)
    assert probability_above == pytest.approx(0.025)
    assert (interval.value, interval.upper) == (found / n, min(1, most / n))


def test_the_distinct_share_of_a_single_answer_may_be_1():
    assert distinct_share_interval([1], [1], 0.05).upper == 1


@pytest.mark.parametrize("interval", [share_interval, mean_interval])
def test_missing_counts_as_zero_below_and_one_above(interval):
    scores = np.tile([0.0, 1.0, 1.0, np.nan], 200)[None, :]

    found = interval(scores, 0.05)

    assert found.lower == interval(np.nan_to_num(scores, nan=0.0), 0.05).lower
    assert found.upper == interval(np.nan_to_num(scores, nan=1.0), 0.05).upper
    assert found.value == pytest.approx(2 / 3)


@pytest.mark.parametrize("interval", [share_interval, mean_interval])
def test_the_fewest_draws_have_an_interval(interval):
    assert interval([[0.0, 1.0], [1.0, 1.0]], 0.05).value == 0.75


@pytest.mark.parametrize(("values", "share"), [([None, 0.6, 0.4], 0.5), ([None], None)])
def test_the_share_of_prompts_above_leaves_out_those_without_a_bound(values, share):
    assert share_above(uppers_of(*values), 0.5) == share


def exact_estimate(leaks: int, n: int, k: int) -> Fraction:
    """The share of subsets of k among n answers that hold a leak."""
    return 1 - Fraction(comb(n - leaks, k), comb(n, k))


@given(st.data())
@settings(max_examples=200)
def test_the_estimate_is_the_share_of_subsets_with_a_leak(data):
    n = data.draw(st.integers(1, 2000))
    counts = data.draw(st.lists(st.integers(0, n), min_size=1, max_size=4))
    ks = data.draw(st.lists(st.integers(1, n), min_size=1, max_size=4))
    exact = []
    for leaks in counts:
        exact.append([float(exact_estimate(leaks, n, k)) for k in ks])

    estimates = unbiased(counts, np.full(len(counts), n), ks)

    np.testing.assert_allclose(estimates, exact, rtol=1e-12, atol=0)


@given(
    st.one_of(st.floats(0, 1), st.floats(0, 1e-9), st.floats(1 - 1e-9, 1)),
    st.sampled_from(QUERIES) | st.integers(1, 10**6),
)
@example(1e-300, 10**6)
@example(5e-324, 2)
@example(1e-12, 10**6)
@settings(max_examples=100)
def test_a_leak_in_k_answers_is_exact_to_full_precision(rate, k):
    with localcontext() as context:  # exact needs millions of digits; 400 keep even the smallest
        context.prec = 400
        exact = float(1 - (1 - Decimal(rate)) ** k)

    # A few roundings; the smallest numbers have no digits to lose.
    assert at_least_once(rate, [k])[0] == pytest.approx(exact, rel=1e-15, abs=5e-324)


def test_a_certain_leak_is_1_and_an_impossible_one_0_in_any_number_of_answers():
    assert at_least_once([False, True], [1, 2, 10**6]).tolist() == [[0, 0, 0], [1, 1, 1]]


def test_a_leak_in_one_answer_is_the_rate_itself():
    rates = np.random.default_rng(0).random(1000)

    assert (at_least_once(rates, [1])[:, 0] == rates).all()


def test_a_rate_that_is_not_a_number_stays_so_in_any_number_of_answers():
    assert np.isnan(at_least_once(np.nan, [1, 2])).all()


questions = st.integers(1, 60).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), min_size=1, max_size=6))
)


@given(questions, st.floats(1e-6, 0.5), st.data())
@settings(max_examples=100)
def test_the_band_is_that_of_one_answer_carried_to_k(case, alpha, data):
    """A missing answer is no leak below and one above; the estimate leaves it out."""
    n, counts = case
    missing = [data.draw(st.integers(0, n - leaks)) for leaks in counts]
    lower = binary_lower(np.array(counts), n, alpha)
    upper = binary_upper(np.add(counts, missing), n, alpha)

    found = Rate.of(counts, n, missing).each(alpha, QUERIES)

    np.testing.assert_array_equal(found.lower, at_least_once(lower, found.k))
    np.testing.assert_array_equal(found.upper, at_least_once(upper, found.k))
    assert (np.diff(found.lower, axis=1) >= 0).all()
    assert (np.diff(found.upper, axis=1) >= 0).all()
    assert ((found.lower >= 0) & (found.lower <= found.upper) & (found.upper <= 1)).all()
    for row, leaks in enumerate(counts):
        answered = n - missing[row]
        exact = np.full(len(found.k), np.nan)
        for place, k in enumerate(found.k.tolist()):
            if k <= answered:
                exact[place] = exact_estimate(leaks, answered, k)
        np.testing.assert_allclose(found.estimate[row], exact, rtol=1e-12)


@pytest.mark.parametrize("column", ["estimate", "lower", "upper"])
def test_a_question_whose_scores_are_not_all_0_or_1_is_nan(column):
    table = getattr(Rate.of([np.nan, 2], [10, 20]).each(0.05, [1, 2]), column)

    assert np.isnan(table[0]).all()
    assert not np.isnan(table[1]).any()


def test_the_worst_question_by_hand():
    found = Rate.of([1, 9, 4], 50).worst(0.03, [1, 20])

    assert found.place == 1
    np.testing.assert_allclose(found.upper, at_least_once(binary_upper(9, 50, 0.03), [1, 20]))
    np.testing.assert_allclose(found.lower, at_least_once(binary_lower(9, 50, 0.01), [1, 20]))
    np.testing.assert_allclose(found.estimate, unbiased([9], [50], [1, 20])[0])
    assert (found.covers, found.alpha) == (Covers.WORST_PROMPT, 0.03)


def chernoff(share: float, groups: int, level: float) -> tuple[float, float]:
    """Both ends of a mean from the ``share`` of ``groups`` independent subsets, by a search on a grid."""
    grid = np.linspace(1e-9, 1 - 1e-9, 200_001)
    hits = share * np.log(np.maximum(share, 1e-300) / grid)
    others = (1 - share) * np.log(np.maximum(1 - share, 1e-300) / (1 - grid))
    inside = grid[groups * (hits + others) <= np.log(1 / level)]
    return inside[0], inside[-1]


@pytest.mark.parametrize("counts", [[20, 25, 30], [0, 3, 50], [0, 0, 0]])
def test_the_mean_by_hand(counts):
    """The pooled rate at half of alpha, the others at a quarter; the subsets of all sizes together."""
    n = 50
    alpha = 0.06
    ks = [1, 4, 5, 100]
    pooled_upper = at_least_once(binary_upper(sum(counts), 150, 0.03), ks)
    uppers_of_questions = at_least_once(binary_upper(counts, n, 0.015 / 3), ks)
    upper = np.minimum(uppers_of_questions.mean(axis=0), pooled_upper)
    pooled_lower = binary_lower(sum(counts), 150, 0.03)
    lowers_of_questions = at_least_once(binary_lower(counts, n, 0.015 / 3), ks)
    lower = np.maximum(lowers_of_questions.mean(axis=0), pooled_lower)
    sizes = [size for size in SUBSETS if size <= n]
    for size in sizes:
        share = float(unbiased(counts, [n] * 3, [size]).mean())
        low, high = chernoff(share, 3 * (n // size), 0.015 / len(sizes))
        for place, k in enumerate(ks):
            upper[place] = min(upper[place], high * max(k / size, 1))
            lower[place] = max(lower[place], low * min(k / size, 1))

    found = Rate.of(counts, n).mean(alpha, ks)

    np.testing.assert_allclose(found.upper, upper, atol=2e-5)
    np.testing.assert_allclose(found.lower, lower, atol=2e-5)
    np.testing.assert_allclose(found.estimate, unbiased(counts, [50] * 3, ks).mean(axis=0))


def test_the_mean_of_unequally_many_answers_has_no_pooled_rate():
    first = at_least_once(binary_upper(1, 40, 0.015), [1, 100])
    second = at_least_once(binary_upper(3, 50, 0.015), [1, 100])
    mean_of_uppers = np.mean([first, second], axis=0)

    found = Rate.of([1, 3], [40, 50]).mean(0.06, [1, 100])

    assert found.upper[0] == mean_of_uppers[0]
    assert (found.upper <= mean_of_uppers).all()
    assert "pooled" not in found.method


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.sampled_from([0.01, 0.05, 0.5]))
def test_pass_hat_k_estimates_the_share_of_right_subsets(right, alpha):
    right = np.array(right)
    n = np.full(len(right), 6)
    missing = np.zeros(len(right), dtype=int)
    ks = [1, 2, 3, 6]
    shares = []
    for k in ks:
        shares.append(np.mean([comb(count, k) / comb(6, k) for count in right]))

    found = pass_hat_k(right, n, missing, alpha, ks)

    np.testing.assert_allclose(found.estimate, shares, atol=1e-12)
    assert (np.diff([found.lower, found.upper]) <= 1e-12).all()
    assert (found.lower <= found.upper).all()
    assert pass_hat_k(right, n, missing, alpha, [10**6]).upper > 0
    wrong_somewhere = Rate.of(n - right, n).mean(alpha, ks)
    np.testing.assert_allclose(found.lower, 1 - wrong_somewhere.upper)


LEAKS = np.array([7, 3])
REST = np.array([200, 40])
N = np.array([500, 500])


def test_the_ends_by_labels_by_hand():
    leaks_of_rest = np.arange(2, 240 - 78 + 1)
    is_likely_above = hypergeom.cdf(2, 240, leaks_of_rest, 80) > 0.04
    is_likely_below = hypergeom.sf(1, 240, leaks_of_rest, 80) > 0.04
    least = leaks_of_rest[is_likely_below].min()
    most = leaks_of_rest[is_likely_above].max()

    ends = labelled_average(LEAKS, REST, N, (2, 80), 0.08)

    assert ends == (binary_lower(10 + least, 1000, 0.04), binary_upper(10 + most, 1000, 0.04))


def test_a_rest_that_is_labelled_whole_is_counted():
    _, upper = labelled_average(LEAKS, REST, N, (3, 240), 0.08)

    assert upper == binary_upper(13, 1000, 0.04)


@pytest.mark.parametrize(("sample", "level"), [(None, 0.08), ((0, 0), 0.04)])
def test_without_labels_of_the_rest_all_of_it_may_leak(sample, level):
    ends = labelled_average(LEAKS, REST, N, sample, 0.08)

    assert ends == (binary_lower(10, 1000, level), binary_upper(250, 1000, level))


def test_a_missing_draw_leaks_in_the_upper_end_by_labels_alone():
    ends = labelled_average(LEAKS, REST, N, None, 0.08, missing=np.array([4, 3]))

    assert ends == (binary_lower(10, 1000, 0.08), binary_upper(257, 1000, 0.08))


@pytest.mark.parametrize("n", [[60, 60], [60, 90]])
def test_ends_of_the_draws_that_came_cover_all_draws_where_some_are_lost(n):
    """Each question loses answers with its probability, and a label is of an answer that came."""
    rng = np.random.default_rng(7)
    losses = np.array([0.1, 0.4])
    rates = np.array([0.5, 0.1])
    alpha = 0.1
    least = float(np.mean((1 - losses) * rates))
    most = least + float(np.mean(losses))

    missed = 0
    for _ in range(400):
        lost = rng.binomial(n, losses)
        leaks = rng.binomial(20, rates).sum()
        ends = random_labels(int(leaks), 40, alpha / 2)
        lower, upper = with_lost(ends, lost.tolist(), n, alpha / 2)
        missed += (lower > least) + (upper < most)

    assert missed <= binom.isf(1e-4, 400, 2 * alpha)


def test_random_labels_have_the_ends_of_a_share():
    assert random_labels(5, 90, 0.05) == (binary_lower(5, 90, 0.05), binary_upper(5, 90, 0.05))


def test_the_lower_end_of_a_single_leak_is_alpha_over_n():
    assert random_labels(1, 90, 0.05)[0] == 0.05 / 90


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_the_average_by_labels_covers_where_the_chosen_texts_follow_the_draws(share):
    """Whole labellings: the mass of the chosen text, the leaks of the rest, and 40 of its draws without replacement."""
    rng = np.random.default_rng(5)
    runs = 250
    alpha = 0.1
    n = np.full(5, 60)
    no_leaks = np.zeros(5)
    rest_rates = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    truth = float(np.mean(rest_rates * share))

    missed_above = 0
    missed_below = 0
    for _ in range(runs):
        rest = rng.binomial(n, rest_rates)
        leaks_of_rest = int(rng.binomial(rest, share).sum())
        clean_of_rest = int(rest.sum()) - leaks_of_rest
        hits = int(rng.hypergeometric(leaks_of_rest, clean_of_rest, 40))
        lower, upper = labelled_average(no_leaks, rest, n, (hits, 40), alpha)
        missed_above += lower > truth
        missed_below += upper < truth

    tolerated_misses = binom.isf(1e-4, runs, alpha)
    assert missed_above <= tolerated_misses
    assert missed_below <= tolerated_misses
