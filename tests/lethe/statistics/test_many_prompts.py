"""Claims over many prompts, leak@k and pass^k, curves by attack budget: formulas, exact twins, coverage, edges."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import bdtr, bdtrc
from scipy.stats import binom, hypergeom

from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.counts import (
    at_least_once,
    labelled_average,
    random_labels,
    unbiased,
)
from lethe.statistics.leak_rates import QUERIES, SUBSETS, Rate, pass_hat_k
from lethe.statistics.many_prompts import (
    Counted,
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


def bounds(*values):
    return [x and Bound(x, "upper", 0.01, Covers.ONE_PROMPT, Assumes.DRAWS, "m", 9) for x in values]


def test_worst_and_every_prompt():
    place, claim = worst_prompt(bounds(0.1, None, 0.4, 0.4, 0.2))
    assert (place, claim.value, claim.covers, claim.alpha) == (2, 0.4, Covers.WORST_PROMPT, 0.01)
    holds, claim = every_prompt_under(bounds(0.1, 0.4), 0.4)
    assert (holds, claim.value, claim.covers) == (True, 0.4, Covers.EVERY_PROMPT)
    assert not every_prompt_under(bounds(0.1, 0.4), 0.39)[0]


def test_the_pool_is_clopper_pearson_on_the_sum():
    claim = pooled_average(np.array([0, 2, 1]), 10, 0.05)
    assert claim.value == pytest.approx(float(binary_upper(3, 30, 0.05)))
    assert (claim.covers, claim.side, claim.n) == (Covers.AVERAGE, "upper", 30)
    below = pooled_average(np.array([0, 2, 1]), 10, 0.05, "lower")
    assert (below.value, below.side) == (pytest.approx(float(binary_lower(3, 30, 0.05))), "lower")


def test_nothing_is_pooled_where_the_pooled_rule_does_not_hold():
    assert pooled([0, 2, 1], [10] * 3, 0.25) == pooled_average([0, 2, 1], 10, 0.25)
    assert pooled([0, 2, 1], [10] * 3, 0.26) is None
    assert pooled([0, 2, 1], [10, 10, 11], 0.05) is None
    assert pooled([0, None, 1], [10] * 3, 0.05) is None
    assert pooled([], [], 0.05) is None


def test_holm_by_hand():
    # .004 <= .05/4, .013 <= .05/3, .02 <= .05/2, .2 > .05
    certified, claim = holm(np.array([0.2, 0.02, 0.004, 0.013]), 0.1, 0.05)
    assert certified.tolist() == [False, True, True, True]
    assert (claim.value, claim.alpha, claim.covers) == (0.1, 0.05, Covers.CERTIFIED)
    # .013 > .05/4 ends the list at once, whatever follows
    assert not holm(np.array([0.013, 0.013, 0.02, 0.02]), 0.1, 0.05)[0].any()
    assert holm(np.array([0.001, 0.002]), 0.1, 0.05)[0].all()


def test_false_statements_over_many_prompts_stay_under_alpha():
    """40 prompts at once with known truth: each claim is wrong in at most alpha of the runs, the plain table more often."""
    for name, share in many_misses(60, 0.05, 400, seed=7):
        assert share <= tolerated(0.05, 400), name
    rates = np.repeat([0.1, 0.02], 20)
    hits = np.random.default_rng(7).binomial(60, rates, (400, 40))
    assert np.mean((binary_upper(hits, 60, 0.05) < rates).any(axis=1)) > 4 * 0.05


def counts(values, n=200, binary=True):
    return [
        Counted(budget, value, value, n, binary)
        for budget, value in zip((0, 1, 2, 4), values, strict=True)
    ]


def test_half_life_compares_with_half_of_the_reference():
    base = band([Counted(0, 180, 180, 200, True)], 0.05)[0]
    found = half_life(band(counts([2, 40, 95, 140]), 0.05), base)
    assert (found.earliest, found.estimate, found.latest) == (2, 2, 4)
    none = half_life(band(counts([2, 3, 4, 5]), 0.05), base)
    assert (none.earliest, none.estimate, none.latest) == (None, None, None)


def test_a_missing_score_widens_both_sides():
    (point,) = band([Counted(0, 10, 30, 100, True)], 0.05)
    (without,) = band([Counted(0, 10, 10, 100, True)], 0.05)
    assert point.upper.value > without.upper.value
    assert point.lower.value == without.lower.value


def naiveempirical_width(values, alpha):
    n = len(values)
    variance = sum((a - b) ** 2 for a in values for b in values) / (2 * n * (n - 1))
    return math.sqrt(2 * variance * math.log(2 / alpha) / n) + 7 * math.log(2 / alpha) / (
        3 * (n - 1)
    )


def test_mean_interval_is_bernstein_with_a_bounded_variance():
    groups, alpha = [[0.1, 0.4, 0.2, 0.3, 0.9], [0.6, 0.6, 0.5, 0.9, 0.1]], 0.2
    squares = [(row[i] - row[i + 1]) ** 2 for row in groups for i in (0, 2)]
    variance = (sum(squares) / 4 + naiveempirical_width(squares, alpha / 4)) / 2
    log = math.log(4 / alpha)
    width = math.sqrt(2 * min(variance, 0.25) * log / 10) + log / 30
    interval = mean_interval(groups, alpha)
    assert interval.value == pytest.approx(0.46)
    assert interval.lower == pytest.approx(max(0, 0.46 - width))
    assert interval.upper == pytest.approx(min(1, 0.46 + width))
    assert (interval.n, interval.alpha) == (10, alpha)


def test_variance_interval_is_the_empirical_bernstein_inequality_on_pairs():
    groups, alpha = (
        [np.linspace(0, 1, 41), np.linspace(0.3, 0.4, 41)],
        0.2,
    )  # the odd draw is left out
    squares = [(row[i] - row[i + 1]) ** 2 for row in groups for i in range(0, 40, 2)]
    groups[1][0], squares[20] = np.nan, 1.0  # the most that a missing draw may differ
    width = naiveempirical_width(squares, alpha / 2)
    interval = within_variance_interval(groups, alpha)
    assert interval.value == pytest.approx((sum(squares) - 1) / 39 / 2)
    assert interval.upper == pytest.approx((sum(squares) / 40 + width) / 2)


def test_share_interval_is_clopper_pearson_on_the_pooled_count():
    groups, alpha = np.zeros((5, 20)), 0.05
    groups[0, :7] = 1
    interval = share_interval(groups, alpha)
    assert bdtr(7, 100, interval.upper) == pytest.approx(alpha / 2)
    assert bdtrc(6, 100, interval.lower) == pytest.approx(alpha / 2)


@pytest.mark.parametrize(("found", "n"), [(40, 400), (3, 200), (200, 200)])
def test_distinct_share_solves_the_two_inequalities(found, n):
    interval = distinct_share_interval([found], [n], 0.05)
    fewest = interval.lower * n
    log = math.log(2 / 0.05)
    assert math.exp(
        -((found - fewest) ** 2) / (2 * fewest + 2 * (found - fewest) / 3)
    ) == pytest.approx(0.025)
    most = found + log + math.sqrt(log**2 + 2 * log * found)
    assert math.exp(-((most - found) ** 2) / (2 * most)) == pytest.approx(0.025)
    assert (interval.value, interval.upper) == (found / n, min(1, most / n))
    assert distinct_share_interval([1], [1], 0.05).upper == 1


@pytest.mark.parametrize("interval", [share_interval, mean_interval])
def test_missing_counts_as_zero_below_and_one_above(interval):
    whole = np.tile([0.0, 1.0, 1.0, np.nan], 200)[None, :]
    found = interval(whole, 0.05)
    assert found.lower == interval(np.nan_to_num(whole, nan=0.0), 0.05).lower
    assert found.upper == interval(np.nan_to_num(whole, nan=1.0), 0.05).upper
    assert found.value == pytest.approx(2 / 3)
    assert interval([[0.0, 1.0], [1.0, 1.0]], 0.05).value == 0.75  # the fewest draws


def test_the_share_of_prompts_above_leaves_out_those_without_a_bound():
    own = [None, *(SimpleNamespace(value=value) for value in (0.6, 0.4))]
    assert (share_above(own, 0.5), share_above([None], 0.5)) == (0.5, None)


def exact_estimate(c: int, n: int, k: int) -> Fraction:
    return 1 - Fraction(comb(n - c, k), comb(n, k))


@given(st.data())
@settings(max_examples=200)
def test_the_estimate_is_the_share_of_subsets_with_a_leak(data):
    n = data.draw(st.integers(1, 2000))
    counts = data.draw(st.lists(st.integers(0, n), min_size=1, max_size=4))
    ks = data.draw(st.lists(st.integers(1, n), min_size=1, max_size=4))
    got = unbiased(counts, np.full(len(counts), n), ks)
    want = [[float(exact_estimate(c, n, k)) for k in ks] for c in counts]
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=0)


@given(
    st.one_of(st.floats(0, 1), st.floats(0, 1e-9), st.floats(1 - 1e-9, 1)),
    st.sampled_from(QUERIES) | st.integers(1, 10**6),
)
@example(1e-300, 10**6)
@example(5e-324, 2)
@example(1e-12, 10**6)
@settings(max_examples=100)
def test_a_leak_in_k_answers_is_exact_to_full_precision(p, k):
    with localcontext() as context:  # exact needs millions of digits; 400 keep even the smallest p
        context.prec = 400
        want = float(1 - (1 - Decimal(p)) ** k)
    # A few roundings; the smallest numbers have no digits to lose.
    assert at_least_once(p, [k])[0] == pytest.approx(want, rel=1e-15, abs=5e-324)


def test_at_its_ends_it_is_0_and_1_and_one_answer_is_the_rate_itself():
    assert at_least_once([False, True], [1, 2, 10**6]).tolist() == [[0, 0, 0], [1, 1, 1]]
    rates = np.random.default_rng(0).random(1000)
    assert (at_least_once(rates, [1])[:, 0] == rates).all()
    assert np.isnan(at_least_once(np.nan, [1, 2])).all()


questions = st.integers(1, 60).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), min_size=1, max_size=6))
)


@given(questions, st.floats(1e-6, 0.5), st.data())
@settings(max_examples=100)
def test_the_band_is_that_of_one_answer_carried_to_k(case, alpha, data):
    """A missing answer is no leak below and one above; the estimate leaves it out."""
    n, counts = case
    missing = [data.draw(st.integers(0, n - c)) for c in counts]
    found = Rate.of(counts, n, missing).each(alpha, QUERIES)
    ends = binary_lower(np.array(counts), n, alpha), binary_upper(np.add(counts, missing), n, alpha)
    for carried, end in zip((found.lower, found.upper), ends, strict=True):
        np.testing.assert_array_equal(carried, at_least_once(end, found.k))
        assert (np.diff(carried, axis=1) >= 0).all()
    assert ((found.lower >= 0) & (found.lower <= found.upper) & (found.upper <= 1)).all()
    for row, (c, gone) in enumerate(zip(counts, missing, strict=True)):
        want = [
            float(exact_estimate(c, n - gone, k)) if k <= n - gone else np.nan
            for k in found.k.tolist()
        ]
        np.testing.assert_allclose(found.estimate[row], want, rtol=1e-12)


def test_a_question_whose_scores_are_not_all_0_or_1_is_nan():
    found = Rate.of([np.nan, 2], [10, 20]).each(0.05, [1, 2])
    for table in (found.estimate, found.lower, found.upper):
        assert np.isnan(table[0]).all()
        assert not np.isnan(table[1]).any()


def test_the_worst_question_by_hand():
    found = Rate.of([1, 9, 4], 50).worst(0.03, [1, 20])
    assert found.place == 1
    np.testing.assert_allclose(found.upper, at_least_once(binary_upper(9, 50, 0.03), [1, 20]))
    np.testing.assert_allclose(found.lower, at_least_once(binary_lower(9, 50, 0.01), [1, 20]))
    np.testing.assert_allclose(found.estimate, unbiased([9], [50], [1, 20])[0])
    assert (found.covers, found.alpha) == (Covers.WORST_PROMPT, 0.03)


def chernoff(u: float, m: int, n: int, k: int, level: float) -> tuple[float, float]:
    """Both ends of the mean from the share of k-subsets with a leak, by a search on a grid."""
    grid = np.linspace(1e-9, 1 - 1e-9, 200_001)
    log = u * np.log(np.maximum(u, 1e-300) / grid) + (1 - u) * np.log(
        np.maximum(1 - u, 1e-300) / (1 - grid)
    )
    inside = grid[m * (n // k) * log <= np.log(1 / level)]
    return inside[0], inside[-1]


@pytest.mark.parametrize("counts", [[20, 25, 30], [0, 3, 50], [0, 0, 0]])
def test_the_mean_by_hand(counts):
    """The pooled rate at half of alpha, the others at a quarter; the subsets of all sizes together."""
    n, alpha, ks = 50, 0.06, [1, 4, 5, 100]
    found = Rate.of(counts, n).mean(alpha, ks)
    upper = np.minimum(
        at_least_once(binary_upper(counts, n, 0.015 / 3), ks).mean(axis=0),
        at_least_once(binary_upper(sum(counts), 150, 0.03), ks),
    )
    lower = np.maximum(
        at_least_once(binary_lower(counts, n, 0.015 / 3), ks).mean(axis=0),
        binary_lower(sum(counts), 150, 0.03),
    )
    used = [k for k in SUBSETS if k <= n]
    for k in used:
        share = unbiased(counts, [n] * 3, [k]).mean()
        low, high = chernoff(float(share), 3, n, k, 0.015 / len(used))
        for place, own in enumerate(ks):
            upper[place] = min(upper[place], high * max(own / k, 1))
            lower[place] = max(lower[place], low * min(own / k, 1))
    np.testing.assert_allclose(found.upper, upper, atol=2e-5)
    np.testing.assert_allclose(found.lower, lower, atol=2e-5)
    np.testing.assert_allclose(found.estimate, unbiased(counts, [50] * 3, ks).mean(axis=0))


def test_the_mean_of_unequally_many_answers_has_no_pooled_rate():
    found = Rate.of([1, 3], [40, 50]).mean(0.06, [1, 100])
    own = np.mean(
        [at_least_once(binary_upper(c, n, 0.015), [1, 100]) for c, n in ((1, 40), (3, 50))], axis=0
    )
    assert found.upper[0] == own[0]
    assert (found.upper <= own).all()
    assert "pooled" not in found.method


NONE = np.zeros(1, dtype=int)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.sampled_from([0.01, 0.05, 0.5]))
def test_the_estimate_is_the_share_of_right_subsets(right, alpha):
    n, ks = np.full(len(right), 6), [1, 2, 3, 6]
    band = pass_hat_k(np.array(right), n, NONE.repeat(len(right)), alpha, ks)
    expected = [np.mean([math.comb(one, k) / math.comb(6, k) for one in right]) for k in ks]
    np.testing.assert_allclose(band.estimate, expected, atol=1e-12)
    assert (np.diff([band.lower, band.upper]) <= 1e-12).all()
    assert (band.lower <= band.upper).all()
    assert pass_hat_k(np.array(right), n, NONE.repeat(len(right)), alpha, [10**6]).upper > 0
    some = Rate.of(n - np.array(right), n).mean(alpha, ks)
    np.testing.assert_allclose(band.lower, 1 - some.upper)


def test_the_ends_by_hand():
    leaks, rest, n = np.array([7, 3]), np.array([200, 40]), np.array([500, 500])
    counts = np.arange(2, 240 - 78 + 1)  # leaks that the rest may have
    is_likely_above = hypergeom.cdf(2, 240, counts, 80) > 0.04
    is_likely_below = hypergeom.sf(1, 240, counts, 80) > 0.04
    least, most = counts[is_likely_below].min(), counts[is_likely_above].max()
    assert labelled_average(leaks, rest, n, (2, 80), 0.08) == (
        binary_lower(10 + least, 1000, 0.04),
        binary_upper(10 + most, 1000, 0.04),
    )
    assert labelled_average(leaks, rest, n, (3, 240), 0.08)[1] == binary_upper(13, 1000, 0.04)
    for sample, level in ((None, 0.08), ((0, 0), 0.04)):
        ends = binary_lower(10, 1000, level), binary_upper(250, 1000, level)
        assert labelled_average(leaks, rest, n, sample, 0.08) == ends
    assert random_labels(5, 90, 0.05) == (binary_lower(5, 90, 0.05), binary_upper(5, 90, 0.05))
    assert random_labels(1, 90, 0.05)[0] == 0.05 / 90


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_the_average_by_labels_covers_where_the_chosen_texts_follow_the_draws(share):
    """Whole labellings: the mass of the chosen text, the leaks of the rest, and 40 of its draws without replacement."""
    rng, runs, alpha = np.random.default_rng(5), 250, 0.1
    questions, n, rest_rate = 5, 60, np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    truth = float(np.mean(rest_rate * share))
    missed = np.zeros(2)
    for _ in range(runs):
        rest = rng.binomial(n, rest_rate)
        leaks_of_rest = int(rng.binomial(rest, share).sum())
        size = int(rest.sum())
        hits = int(rng.hypergeometric(leaks_of_rest, size - leaks_of_rest, 40))
        lower, upper = labelled_average(
            np.zeros(questions), rest, np.full(questions, n), (hits, 40), alpha
        )
        missed += lower > truth, upper < truth
    assert (missed <= binom.isf(1e-4, runs, alpha)).all()
