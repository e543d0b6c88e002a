"""Differences of means: coverage, false claims under the null, and the p-value against the intervals that it inverts."""

import numpy as np
import pytest
from scipy.stats import beta, binom

from lethe.errors import BadValue
from lethe.statistics.many_prompts import holm
from lethe.statistics.mean_difference import difference, mean_of_differences
from tests.lethe.statistics.draws import allowed

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
    ("ones_a", "n_a", "ones_b", "n_b"), [(0, 50, 9, 40), (30, 60, 12, 60), (5, 20, 6, 30), (3, 9, 0, 8)]
)
def test_the_p_value_is_the_naive_one_and_inverts_the_interval(ones_a, n_a, ones_b, n_b):
    a, b = np.repeat([1.0, 0.0], [ones_a, n_a - ones_a]), np.repeat([1.0, 0.0], [ones_b, n_b - ones_b])
    found = difference(a, b, ALPHA, binary=True)
    assert found.p_value == pytest.approx(naive(ones_a, n_a, ones_b, n_b), rel=0.02)
    for level, excludes in ((found.p_value * 1.02, True), (found.p_value * 0.98, False)):
        if level <= 0.5:
            got = difference(a, b, level, binary=True)
            assert (got.low > 0 or got.high < 0) == excludes
    lower = beta.ppf(ALPHA / 4, ones_b, n_b - ones_b + 1) if ones_b else 0.0
    assert found.low == pytest.approx(lower - beta.ppf(1 - ALPHA / 4, ones_a + 1, n_a - ones_a))


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


@pytest.mark.parametrize("draws", ["independent", "one seed", "opposite"])
def test_the_interval_covers_whatever_the_dependence(draws):
    rng, misses, runs = np.random.default_rng(1), 0, 200
    for _ in range(runs):
        u = rng.random(30)
        v = {"independent": rng.random(30), "one seed": u, "opposite": 1 - u}[draws]
        found = difference((u < 0.2).astype(float), (v < 0.35).astype(float), ALPHA, binary=True)
        misses += not found.low <= 0.15 <= found.high
    assert misses <= allowed(ALPHA, runs)


@pytest.mark.parametrize("binary", [True, False])
def test_two_runs_of_one_distribution_give_false_claims_at_most_alpha(binary):
    """Null data: in each of 12 questions both runs have one distribution; Holm's list is not empty in at most alpha."""
    rng, false, runs = np.random.default_rng(3), 0, 100 if binary else 30
    rates = np.linspace(0.02, 0.6, 12)
    for _ in range(runs):
        p_values = []
        for rate in rates if binary else rates[::4]:
            a, b = (coin(rng, rate, 40) if binary else rng.beta(rate, 1, 20) for _ in range(2))
            p_values.append(difference(a, b, ALPHA, binary).p_value)
        false += holm(p_values, 0.0, ALPHA)[0].any()
    assert false <= allowed(ALPHA, runs)


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


@pytest.mark.parametrize("binary", [True, False])
def test_the_average_covers_and_has_false_claims_at_most_alpha(binary):
    rng, misses, false, runs = np.random.default_rng(5), 0, 0, 100
    rates = np.linspace(0.05, 0.5, 6)

    def draw(rate):
        return coin(rng, rate, 20) if binary else rng.beta(rate, 1 - rate, 20)

    for _ in range(runs):
        a, b, same = ([draw(rate + more) for rate in rates] for more in (0, 0.2, 0))
        found = mean_of_differences(a, b, ALPHA, binary)
        misses += not found.low <= 0.2 <= found.high
        false += mean_of_differences(a, same, ALPHA, binary).p_value <= ALPHA
    assert misses <= allowed(ALPHA, runs)
    assert false <= allowed(ALPHA, runs)


def test_models_that_share_random_numbers_are_not_pooled():
    rng, false, pooled, runs, models = np.random.default_rng(8), 0, 0, 80, 12
    names = [name for name in "abcdefghijkl" for _ in range(3)]
    for _ in range(runs):
        one, other = ([coin(rng, 0.3, 20) for _ in range(3)] * models for _ in range(2))
        false += mean_of_differences(one, other, ALPHA, True, names).p_value <= ALPHA
        pooled += mean_of_differences(one, other, ALPHA, True).p_value <= ALPHA
    assert false <= allowed(ALPHA, runs)
    assert pooled > allowed(ALPHA, runs)


def test_bad_values_are_refused():
    for call in (
        lambda: difference(np.array([0.5]), np.array([1.0]), ALPHA, binary=True),
        lambda: difference(np.array([2.0]), np.array([1.0]), ALPHA),
        lambda: difference(np.array([1.0]), np.array([1.0]), 0.0),
        lambda: mean_of_differences([], [], ALPHA),
        lambda: mean_of_differences([np.zeros(9)], [np.zeros(9)], ALPHA, groups=["a", "b"]),
    ):
        with pytest.raises(BadValue):
            call()


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
        narrower += found.high - found.low < (wide := difference(a, b, alpha, binary)).high - wide.low
        misses += not found.low <= truth <= found.high
        false += difference(a, same, alpha, binary, draws=draws).p_value <= alpha
        if binary or draws == "pairs":
            assert (found.p_value <= alpha) == (
                found.low > 0 or found.high < 0
            ) or 0.98 < found.p_value / alpha < 1.02
    assert misses <= allowed(alpha, runs)
    assert false <= allowed(alpha, runs)
    assert narrower >= 0.8 * runs


@pytest.mark.parametrize("draws", ["apart", "pairs"])
@pytest.mark.parametrize("binary", [True, False])
def test_the_average_of_recorded_seeds_holds(draws, binary):
    rng, misses, false, runs, rates = np.random.default_rng(10), 0, 0, 20, (0.05, 0.2, 0.5)
    for _ in range(runs):
        u = rng.random((3, 40))
        v = u if draws == "pairs" else rng.random((3, 40))
        a, b, same = (
            [(row < rate + more).astype(float) for row, rate in zip(source, rates, strict=True)]
            for source, more in ((u, 0), (v, 0.2), (v, 0))
        )
        found = mean_of_differences(a, b, ALPHA, binary, draws=draws)
        misses += not found.low <= 0.2 <= found.high
        wide = mean_of_differences(a, b, ALPHA, binary)
        assert found.high - found.low < wide.high - wide.low
        false += mean_of_differences(a, same, ALPHA, binary, draws=draws).p_value <= ALPHA
    assert misses <= allowed(ALPHA, runs)
    assert false <= allowed(ALPHA, runs)


def test_one_answer_per_question_gives_false_claims_at_most_alpha():
    rng, false, misses, runs = np.random.default_rng(11), 0, 0, 400
    rates = np.linspace(0, 0.9, 30)
    for _ in range(runs):
        a, b = (list((rng.random(30) < rates + more).astype(float)[:, None]) for more in (0, 0))
        c = list((rng.random(30) < rates + 0.1).astype(float)[:, None])
        false += mean_of_differences(a, b, ALPHA, True).p_value <= ALPHA
        found = mean_of_differences(a, c, ALPHA, True)
        misses += not found.low <= 0.1 <= found.high
    assert false <= allowed(ALPHA, runs)
    assert misses <= allowed(ALPHA, runs)


def test_planned_answers_have_the_planned_power():
    from lethe.statistics.planning import answers_to_see, chance

    rng = np.random.default_rng(12)
    n = answers_to_see(0.1, 0.2, power=0.8, alpha=0.05, prompts=1, apart=True)
    shown = [
        difference(coin(rng, 0.1, n), coin(rng, 0.3, n), 0.05, True, draws="apart").p_above() <= 0.025
        for _ in range(200)
    ]
    assert 0.7 < np.mean(shown) < 0.9
    assert chance(n, 0.1, 0.2, 0.025, apart=False) < 0.8
    assert answers_to_see(0.1, 0.2, 0.8, 0.05, 30, True) > n
