"""Leak@k, pass^k and rates by labels alone: exact twins, the edges, and what each claim over questions covers."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lethe.statistics.bound import Covers
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.counts import (
    at_least_once,
    labelled_average,
    pooled_bounds,
    random_labels,
    rate_bounds,
    unbiased,
)
from lethe.statistics.leak_rates import QUERIES, SUBSETS, Band, Rate, pass_hat_k
from lethe.statistics.two_sample import kl_upper
from tests.lethe.statistics.draws import Shares, clopper_pearson, shares, tolerated
from tests.lethe.statistics.judge_error_coverage import leak_at_k_misses


def leak_at_k(leaks, n, alpha, ks=QUERIES, missing=0) -> Band:
    return Rate.of(leaks, n, missing).each(alpha, ks)


def mean_over_questions(leaks, n, alpha, ks=QUERIES, missing=0) -> Band:
    return Rate.of(leaks, n, missing).mean(alpha, ks)


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
    assert at_least_once([0.0, 1.0], [1, 2, 10**6]).tolist() == [[0, 0, 0], [1, 1, 1]]
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
    found = leak_at_k(counts, n, alpha, missing=missing)
    ends = binary_lower(np.array(counts), n, alpha), binary_upper(np.add(counts, missing), n, alpha)
    for carried, end in zip((found.lower, found.upper), ends, strict=True):
        np.testing.assert_array_equal(carried, at_least_once(end, found.k))
        assert (np.diff(carried, axis=1) >= 0).all()
    assert ((found.lower >= 0) & (found.lower <= found.upper) & (found.upper <= 1)).all()
    for row, (c, gone) in enumerate(zip(counts, missing, strict=True)):
        want = [float(exact_estimate(c, n - gone, k)) if k <= n - gone else np.nan for k in found.k.tolist()]
        np.testing.assert_allclose(found.estimate[row], want, rtol=1e-12)


def test_a_question_whose_scores_are_not_all_0_or_1_is_nan():
    found = leak_at_k([np.nan, 2], [10, 20], 0.05, ks=[1, 2])
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
    log = u * np.log(np.maximum(u, 1e-300) / grid) + (1 - u) * np.log(np.maximum(1 - u, 1e-300) / (1 - grid))
    inside = grid[m * (n // k) * log <= np.log(1 / level)]
    return inside[0], inside[-1]


@pytest.mark.parametrize("counts", [[20, 25, 30], [0, 3, 50], [0, 0, 0]])
def test_the_mean_by_hand(counts):
    """The pooled rate at half of alpha, the others at a quarter; the subsets of all sizes together."""
    n, alpha, ks = 50, 0.06, [1, 4, 5, 100]
    found = mean_over_questions(counts, n, alpha, ks)
    upper = np.minimum(
        at_least_once(binary_upper(counts, n, 0.015 / 3), ks).mean(axis=0),
        at_least_once(binary_upper(sum(counts), 150, 0.03), ks),
    )
    lower = np.maximum(
        at_least_once(binary_lower(counts, n, 0.015 / 3), ks).mean(axis=0), binary_lower(sum(counts), 150, 0.03)
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
    found = mean_over_questions([1, 3], [40, 50], 0.06, [1, 100])
    own = np.mean([at_least_once(binary_upper(c, n, 0.015), [1, 100]) for c, n in ((1, 40), (3, 50))], axis=0)
    assert found.upper[0] == own[0]
    assert (found.upper <= own).all()
    assert "pooled" not in found.method


@pytest.mark.parametrize("alpha", [0.01, 0.05])
@pytest.mark.parametrize(
    "rates", [np.full(20, 0.01), np.r_[np.zeros(19), 0.5], np.repeat([0.0, 0.05], 10)], ids=str
)
def test_the_mean_keeps_its_level_where_subsets_taken_for_draws_do_not(rates, alpha):
    """All k together; the naive twin counts n subsets of a question, of which only n // k share no answer."""
    rng, n, runs = np.random.default_rng(11), 128, 400
    ks, missed, naive = np.array([1, 2, 3, 7, 20, 50, 300]), [], []
    truth = at_least_once(rates, ks).mean(axis=0)
    for _ in range(runs):
        leaks = rng.binomial(n, rates)
        found = mean_over_questions(leaks, n, alpha, ks.tolist())
        missed.append(((found.lower > truth + 1e-9).any(), (found.upper < truth - 1e-9).any()))
        share = unbiased(leaks, np.full(20, n), [20]).mean()
        naive.append(kl_upper(float(share), np.log(1 / alpha) / (20 * n)) < truth[4])  # as if subsets were draws
    assert np.mean(missed, axis=0).max() <= tolerated(alpha, runs)
    if rates[0] == rates[-1]:
        assert np.mean(naive) > 3 * alpha


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.05), (1, 0.25), (2, 0.25), (30, 0.05)])
def test_the_pooled_bounds_hold_where_clopper_pearson_does_not(n, alpha):
    """One of 40 questions has all the mass: the count of 1 is the case that Hoeffding's theorem leaves out."""
    m = 40
    plain, lower = rate_bounds([1], [m * n], alpha)[0][0], pooled_bounds([1] + [0] * (m - 1), [n] * m, alpha)[0][0]
    for bound, holds in ((plain, False), (lower, True)):
        p = min(1.0, bound * m * (1 - 1e-12))  # just below the bound
        assert (1 - (1 - p) ** n <= alpha * (1 + 1e-9)) == holds, bound
    some = pooled_bounds([n] * (m - 1) + [n - 1], [n] * m, alpha)[1][0]
    assert some == pytest.approx(1 - lower)


def test_claims_over_twenty_equal_questions_keep_their_level_and_the_uncorrected_one_does_not():
    alpha, runs = 0.05, 1000
    shares = leak_at_k_misses(128, alpha, runs, seed=3)
    for name in ("worst, leak@k", "mean, leak@k"):
        assert max(shares[name]) <= tolerated(alpha, runs), name
    assert shares["uncorrected worst"][0] > 4 * alpha


NONE = np.zeros(1, dtype=int)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.sampled_from([0.01, 0.05, 0.5]))
def test_the_estimate_is_the_share_of_right_subsets(right, alpha):
    n, ks = np.full(len(right), 6), [1, 2, 3, 6]
    band = pass_hat_k(np.array(right), n, NONE.repeat(len(right)), alpha, ks)
    expected = [np.mean([math.comb(one, k) / math.comb(6, k) for one in right]) for k in ks]
    np.testing.assert_allclose(band.estimate, expected, atol=1e-12)
    assert (np.diff(band.lower) <= 1e-12).all()
    assert (np.diff(band.upper) <= 1e-12).all()
    assert (band.lower <= band.upper).all()
    some = Rate.of(n - np.array(right), n).mean(alpha, ks)
    np.testing.assert_allclose(band.lower, 1 - some.upper)


def test_the_ends_by_hand():
    leaks, rest, n = np.array([7, 3]), np.array([200, 40]), np.array([500, 500])
    own, unlabelled, rate = (
        np.array(clopper_pearson(k, of, 0.02)) for k, of in ((10, 1000), (240, 1000), (2, 80))
    )
    assert labelled_average(leaks, rest, n, (2, 80), 0.08) == pytest.approx(tuple(own + unlabelled * rate))
    for sample, level in ((None, 0.08), ((0, 0), 0.02)):
        ends = binary_lower(10, 1000, level), binary_upper(250, 1000, level)
        assert labelled_average(leaks, rest, n, sample, 0.08) == ends
    assert random_labels(5, 90, 0.05) == (binary_lower(5, 90, 0.05), binary_upper(5, 90, 0.05))
    assert random_labels(1, 90, 0.05)[0] == 0.05 / 90


class World:
    """Answers of one question: texts with probabilities, and labels."""

    def __init__(self, seed: int, tail: int = 300):
        self.rng = np.random.default_rng(seed)
        # A few frequent texts, one text of medium frequency that leaks, and a long tail.
        weights = np.concatenate([[60, 20, 12], np.full(tail, 8 / tail)])
        self.share = weights / weights.sum()
        self.leak = np.concatenate([[False, False, True], self.rng.random(tail) < 0.3])
        self.truth = float(self.share[self.leak].sum())

    def draw(self, n: int) -> np.ndarray:
        return self.rng.choice(len(self.share), n, p=self.share)

    def labelled(self, draws: np.ndarray, mass: float) -> np.ndarray:
        """The most frequent texts of these draws until they cover ``mass`` of them."""
        counts = np.bincount(draws, minlength=len(self.share))
        order = np.argsort(-counts, kind="stable")
        needed = int(np.searchsorted(np.cumsum(counts[order]), mass * len(draws))) + 1
        chosen = np.zeros(len(self.share), bool)
        chosen[order[:needed]] = True
        return chosen & (counts > 0)


def misses(alpha: float, runs: int, mass: float) -> Shares:
    seeds, n = iter(range(runs)), np.array([300, 300])  # a second question that never leaks, and is labelled whole

    def run():
        world = World(next(seeds))
        chosen = world.labelled(world.draw(300), mass)
        counted = world.draw(300)
        outside = np.flatnonzero(~chosen[counted])
        leaks, rest = np.array([world.leak[counted[chosen[counted]]].sum(), 0]), np.array([len(outside), 0])
        low, high = rate_bounds(leaks, n, alpha, rest)
        yield "question", (low[0] > world.truth, high[0] < world.truth)
        drawn = world.leak[counted[world.rng.permutation(outside)[:30]]]
        texts = world.leak[np.unique(counted[outside])]
        for name, labels in (("average", drawn), ("texts labelled once each", texts)):
            ends = labelled_average(leaks, rest, n, (int(labels.sum()), len(labels)), alpha)
            yield name, (ends[0] > world.truth / 2, ends[1] < world.truth / 2)
        same = world.labelled(counted, 0.99)
        low, high = rate_bounds(np.array([float((~same[counted]).sum())]), np.array([300.0]), alpha)
        true_rest = float(world.share[~same].sum())
        yield "mass on the same draws", (low[0] > true_rest, high[0] < true_rest)

    return shares(run, runs)


@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_the_bounds_keep_their_level_and_the_shortcuts_do_not(alpha):
    """A text of medium frequency leaks, and is labelled only in some of the runs."""
    runs = 400
    found = misses(alpha, runs, mass=0.75)
    for name in ("question", "average"):
        assert max(found[name]) <= tolerated(alpha, runs), name
    assert max(found["texts labelled once each"]) > 2 * alpha
    assert max(found["mass on the same draws"]) > 0.9
