import numpy as np
import pytest
from scipy.stats import binom

from lethe.errors import BadValue
from lethe.statistics import betting
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.bounds import binary_lower, binary_upper, leak_bounds, pooled_lower, pooled_upper
from lethe.statistics.many_prompts import (
    binary_p_value,
    bonferroni,
    every_prompt_under,
    holm,
    pooled,
    pooled_average,
    share_above,
    worst_prompt,
)
from tests.lethe.statistics.misses import tolerated


def bounds(*values):
    return [x and Bound(x, "upper", 0.01, Covers.ONE_PROMPT, Assumes.DRAWS, "m", 9) for x in values]


def test_worst_and_every_prompt():
    place, claim = worst_prompt(bounds(0.1, None, 0.4, 0.4, 0.2))
    assert (place, claim.value, claim.covers, claim.alpha) == (2, 0.4, Covers.WORST_PROMPT, 0.01)
    holds, claim = every_prompt_under(bounds(0.1, 0.4), 0.4)
    assert (holds, claim.value, claim.covers) == (True, 0.4, Covers.EVERY_PROMPT)
    assert not every_prompt_under(bounds(0.1, 0.4), 0.39)[0]
    with pytest.raises(BadValue, match="bounds"):
        worst_prompt(bounds(None))


def test_the_pool_is_clopper_pearson_on_the_sum():
    claim = pooled_average(np.array([0, 2, 1]), 10, 0.05)
    assert claim.value == pytest.approx(float(binary_upper(3, 30, 0.05)))
    assert (claim.covers, claim.side, claim.n) == (Covers.AVERAGE, "upper", 30)
    below = pooled_average(np.array([0, 2, 1]), 10, 0.05, "lower")
    assert (below.value, below.side) == (pytest.approx(float(binary_lower(3, 30, 0.05))), "lower")
    with pytest.raises(BadValue, match="alpha"):
        pooled_average(np.array([0, 2]), 10, 0.3)


@pytest.mark.parametrize("alpha", [0.05, 0.25])  # Clopper-Pearson misses in 0.0513 and 0.2876 of the draws
@pytest.mark.parametrize(("questions", "n"), [(400, 1), (10, 2), (30, 1024)])
def test_one_leaking_question_misses_at_its_level(questions, n, alpha):
    lower = pooled_average(np.eye(questions)[0], n, alpha, "lower").value
    upper = pooled_average(n - np.eye(questions)[0], n, alpha, "upper").value
    for share in (lower, 1 - upper):  # all of it on one question, just below the bound: a miss is one leak or more
        assert 1 - (1 - min(1.0, share * questions)) ** n <= alpha * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [0.01, 0.25])
def test_no_unequal_probabilities_miss_more_often(alpha):
    total = 10
    counts = np.arange(total + 1)
    lower = np.array([pooled_lower(count, total, alpha) for count in counts])
    for certain, open_ in [
        (a, b) for a in range(total) for b in range(1, total - a + 1)
    ]:  # Hoeffding's extreme points
        for p in (lower[1:] * total - certain) / open_ * (1 - 1e-12):
            if 0 < p < 1:
                chances = binom.pmf(counts - certain, open_, p)
                assert chances[lower > (certain + open_ * p) / total].sum() <= alpha * (1 + 1e-9)
    upper = [pooled_upper(count, total, alpha) for count in counts]
    assert upper == pytest.approx(1 - lower[::-1])


def test_a_single_question_keeps_its_own_bound():
    assert pooled_average([1], 40, 0.05, "lower").value == binary_lower(1, 40, 0.05)


def test_nothing_is_pooled_where_the_pooled_rule_does_not_hold():
    assert pooled([0, 2, 1], [10] * 3, 0.25) == pooled_average([0, 2, 1], 10, 0.25)
    assert pooled([0, 2, 1], [10] * 3, 0.26) is None
    assert pooled([0, 2, 1], [10, 10, 11], 0.05) is None
    assert pooled([0, None, 1], [10] * 3, 0.05) is None
    assert pooled([], [], 0.05) is None


def test_share_above_is_strict():
    assert share_above(bounds(0.1, 0.2, None, 0.05, 0.3), 0.1) == 0.5
    assert share_above(bounds(None), 0.1) is None


def test_holm_by_hand():
    # .004 <= .05/4, .013 <= .05/3, .02 <= .05/2, .2 > .05
    certified, claim = holm(np.array([0.2, 0.02, 0.004, 0.013]), 0.1, 0.05)
    assert certified.tolist() == [False, True, True, True]
    assert (claim.value, claim.alpha, claim.covers) == (0.1, 0.05, Covers.CERTIFIED)
    # .013 > .05/4 ends the list at once, whatever follows
    assert not holm(np.array([0.013, 0.013, 0.02, 0.02]), 0.1, 0.05)[0].any()
    assert holm(np.array([0.001, 0.002]), 0.1, 0.05)[0].all()


def test_bonferroni_bounds_each_prompt_at_its_part_of_alpha():
    table = bonferroni(lambda alpha: leak_bounds([0, 3], 20, alpha), 2, 0.05)
    assert [bound.value for bound in table] == pytest.approx(binary_upper([0, 3], 20, 0.025).tolist())
    assert {(bound.alpha, bound.covers) for bound in table} == {(0.05, Covers.EVERY_PROMPT)}


def test_binary_p_values_are_exact():
    from scipy.stats import binom

    for successes in (0, 3, 20):
        assert binary_p_value(successes, 20, 0.3) == pytest.approx(binom.cdf(successes, 20, 0.3))


def values(table):
    return np.array([bound.value for bound in table])


def errors(runs: int, judge) -> float:
    rng = np.random.default_rng(7)
    return np.mean([judge(rng) for _ in range(runs)])


RATES = np.concatenate([np.full(20, 0.1), np.full(20, 0.02)])


def test_false_statements_over_many_prompts_stay_under_alpha():
    """40 prompts at once with known truth: each claim is wrong in at most alpha of the runs, the plain table more often."""
    n, alpha, runs = 60, 0.05, 1500

    def draw(rng):
        return rng.binomial(n, RATES)

    assert errors(runs, lambda rng: binary_upper(draw(rng), n, alpha).max() < RATES.max()) <= tolerated(
        alpha, runs
    )
    assert errors(runs, lambda rng: pooled_average(draw(rng), n, alpha).value < RATES.mean()) <= tolerated(
        alpha, runs
    )

    def table_wrong(rng, level):
        return (binary_upper(draw(rng), n, level) < RATES).any()

    assert errors(runs, lambda rng: table_wrong(rng, alpha)) > 4 * alpha

    def corrected(rng):
        hits = draw(rng)
        return values(bonferroni(lambda level: leak_bounds(hits, n, level), 40, alpha))

    assert errors(runs, lambda rng: (corrected(rng) < RATES).any()) <= tolerated(alpha, runs)

    def list_wrong(rng):
        return holm(binary_p_value(draw(rng), n, 0.1), 0.1, alpha)[0][RATES >= 0.1].any()

    assert errors(runs, list_wrong) <= tolerated(alpha, runs)


def test_betting_p_values_are_valid_and_find_what_is_low():
    rng = np.random.default_rng(0)
    null = betting.p_value(rng.random((2000, 50)), 0.5, 0.05)
    assert np.mean(null <= 0.05) <= tolerated(0.05, 2000)
    assert (betting.p_value(rng.random((20, 200)) * 0.2, 0.5, 0.05) < 1e-3).all()
