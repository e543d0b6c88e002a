"""The paper's bounds: oracles, twins written from the formulas, coverage, and the faults of the printed forms."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.statistics import bands, betting, bounds
from lethe.statistics.bounds import paper_bounds, tighter_bounds
from lethe.statistics.planning import samples_for_width
from tests.lethe.statistics import draws as printed
from tests.lethe.statistics.coverage import misses
from tests.lethe.statistics.draws import LAWS, drawn, tolerated

SMALL = np.array([0.05, 0.2, 0.2, 0.4, 0.6, 0.61, 0.9, 0.95, 0.99, 1.0])


def mean_ends(ordered, grid, width, clip):
    """(upper, lower) of the mean, in the paper's form: F_n at the left and at the right end of a cell.

    ``width`` is the half width of the band around the empirical distribution of the ``ordered``
    scores; with ``clip`` the band stays in [0, 1].
    """
    cdf = np.searchsorted(ordered, grid, side="right") / len(ordered)
    below = cdf - width
    above = cdf + width
    if clip:
        below = np.maximum(below, 0)
        above = np.minimum(above, 1)
    widths = np.diff(grid)
    return 1 - widths @ below[:-1], 1 - widths @ above[1:]


def sign_taken_literally(ordered, grid, alpha):
    """The printed M_sigma squared with sign() as a sign, which its proof does not mean: a negative control."""
    cdf = np.searchsorted(ordered, grid, side="right") / len(ordered)
    width = bands.dkw(len(ordered), alpha, sides=2)
    upper, lower = mean_ends(ordered, grid, width, clip=False)
    farthest = np.maximum(np.square(grid - upper), np.square(grid - lower))
    eta = np.maximum(farthest[:-1], farthest[1:])
    steps = eta[:-1] - eta[1:]
    sign = np.sign(steps)
    above = (cdf + width)[1:-1]
    below = (cdf - width)[1:-1]
    return eta[-1] + steps @ (sign * above + (1 - sign) * below) - eta[0] * (cdf[0] - width)


class Oracle:
    """A recorded value with its scores in ascending order and its parameters."""

    def __init__(self, case: dict):
        self.name = case["id"]
        self.metric = case["metric"]
        self.expected = case["expected"]
        self.params = case["params"]
        self.input = case["input"]
        self.alpha = self.params.get("alpha")
        self.scores = np.array([])
        if "x" in self.input or "generator" in self.input:
            self.scores = np.sort(drawn(case))
        self.n = self.input.get("n", len(self.scores))

    @property
    def grid(self) -> np.ndarray:
        if "tau" in self.params:
            return np.array(self.params["tau"])
        return np.linspace(0, 1, self.params["linspace_points"])


def binary_upper(case):
    return bounds.binary_upper(case.input["S"], case.n, case.alpha)


def dkw_one_sided(case):
    return bands.dkw(case.n, case.alpha)


def dkw_two_sided(case):
    return bands.dkw(case.n, case.alpha, sides=2)


def samples_one_sided(case):
    return samples_for_width(case.input["eps"], case.alpha)


def samples_two_sided(case):
    return samples_for_width(case.input["eps"], case.alpha, sides=2)


def tail_unclipped(case):
    tail = bounds.tail(case.scores[None], [case.params["x"]])[0, 0]
    return tail + bands.dkw(case.n, case.alpha)


def tail_clipped(case):
    return paper_bounds(case.scores, case.alpha, [case.params["x"]]).m_gen[0, 0]


def mean_upper_printed(case):
    return printed.printed_mean(case.scores, case.grid, case.alpha, clip=False)[0]


def mean_lower_printed(case):
    return printed.printed_mean(case.scores, case.grid, case.alpha, clip=False)[1]


def mean_upper_clipped(case):
    return printed.printed_mean(case.scores, case.grid, case.alpha)[0]


def mean_lower_clipped(case):
    return printed.printed_mean(case.scores, case.grid, case.alpha)[1]


def mean_upper_one_sided(case):
    return paper_bounds(case.scores, case.alpha, [0.5]).m_mu[0]


def variance_corrected(case):
    width = bands.dkw(case.n, case.alpha, sides=2)
    return printed.grid_variance_upper(case.scores, case.grid, width)


def variance_printed(case):
    return printed.printed_variance_no_bound(case.scores, case.grid, case.alpha)


def variance_of_literal_sign(case):
    return sign_taken_literally(case.scores, case.grid, case.alpha)


def variance_minimax(case):
    return bounds.sd_upper(case.scores, case.alpha)[0] ** 2


def ed_score(case):
    return paper_bounds(case.scores, 0.01, [0.5], case.params["rho"]).ed_score[0]


def berk_jones_eta(case):
    return bands.berk_jones_eta(case.n, case.alpha)


def berk_jones_coverage(case):
    return 1 - bands.crossing(bands.berk_jones(case.n, case.params["eta"]))


def mean_upper_berk_jones(case):
    band = bands.berk_jones(case.n, case.params["eta"])
    return 1 - np.diff(case.scores, append=1) @ band


VALUE_OF_METRIC = {
    "M_bin": binary_upper,
    "dkw_eps_one_sided": dkw_one_sided,
    "dkw_eps_two_sided": dkw_two_sided,
    "sample_size_one_sided": samples_one_sided,
    "sample_size_two_sided": samples_two_sided,
    "M_gen_unclipped": tail_unclipped,
    "M_gen_clipped": tail_clipped,
    "M_mu_upper_printed": mean_upper_printed,
    "mu_lower_printed": mean_lower_printed,
    "M_mu_upper_clipped": mean_upper_clipped,
    "mu_lower_clipped": mean_lower_clipped,
    "M_mu_upper_onesided_exactgrid": mean_upper_one_sided,
    "M_sigma_sq_corrected": variance_corrected,
    "M_sigma_sq_printed_indicator": variance_printed,
    "conbo_variance_upper": variance_printed,
    "M_sigma_sq_printed_sign": variance_of_literal_sign,
    "sigma_sq_upper_minimax_dkw": variance_minimax,
    "ED_score": ed_score,
    "bj_one_sided_eta": berk_jones_eta,
    "bj_one_sided_level_coverage": berk_jones_coverage,
    "M_mu_upper_BJ": mean_upper_berk_jones,
}
NOT_REQUIRED = {
    "mu_upper_betting_prpl",  # one capital with stakes that do not follow it: see the naive twin
    "sigma_upper_betting_pred_centre",
    "mu_upper_hoeffding_bentkus",
    "mu_upper_maurer_pontil",
    "sigma_upper_maurer_pontil",
    "noncross_prob_ks",
}


def test_every_required_oracle(shared):
    cases = json.loads((shared / "oracles/bounds.json").read_text())["cases"]
    required = [Oracle(case) for case in cases if case["metric"] not in NOT_REQUIRED]
    assert len(required) > 100

    for case in required:
        value = float(VALUE_OF_METRIC[case.metric](case))

        relative = 1e-6 if case.metric == "bj_one_sided_eta" else 1e-9
        assert value == pytest.approx(case.expected, rel=relative, abs=1e-12), case.name


@pytest.mark.parametrize(
    ("hits", "n", "alpha", "upper"),
    [(0, 1024, 0.01, 0.004487139084149817), (3, 20, 0.05, 0.3436638043142818)],
)
def test_the_upper_end_of_a_share_is_the_known_value(hits, n, alpha, upper):
    assert bounds.binary_upper(hits, n, alpha) == pytest.approx(upper, rel=1e-12)


def test_the_ends_of_a_share_of_none_and_of_all_are_0_and_1():
    assert bounds.binary_lower(0, 20, 0.05) == 0.0
    assert bounds.binary_lower(20, 20, 0.05) == pytest.approx(0.05 ** (1 / 20))
    assert bounds.binary_upper(20, 20, 0.05) == 1.0


def test_the_width_of_the_dkw_band_is_the_known_value():
    assert bands.dkw(1024, 0.01) == pytest.approx(0.04741959779328583, rel=1e-12)


def test_the_local_level_of_the_berk_jones_band_is_the_known_value():
    assert bands.berk_jones_eta(128, 0.01) == pytest.approx(0.00035076028542467737, rel=1e-9)


def test_the_upper_mean_by_bets_is_the_known_value():
    assert betting.mean_upper(SMALL[::-1], 0.01)[0] == pytest.approx(0.8396187381027376, rel=1e-8)


def test_the_upper_sd_is_the_known_value():
    tighter = tighter_bounds(SMALL, 0.01, [0.5])

    assert tighter.sd_upper[0] == pytest.approx(0.6971903410180416, rel=1e-8)
    assert tighter.thresholds == [0.5]


def test_the_tail_of_scores_that_are_all_0_is_the_known_value():
    paper = paper_bounds(np.zeros(5), 0.01, [0.0])

    assert paper.m_gen[0, 0] == pytest.approx(0.6786140424415112, rel=1e-12)


def naive_variance_upper(ordered, grid, width):
    """The corrected bound cell by cell, on a grid from 0 to 1."""
    ends_of_mean = mean_ends(ordered, grid, width, clip=True)
    eta = []
    for left, right in itertools.pairwise(grid):
        squares = [
            (end - mean) ** 2 for end, mean in itertools.product((left, right), ends_of_mean)
        ]
        eta.append(max(squares))

    total = eta[-1]
    for place in range(1, len(grid) - 1):
        step = eta[place - 1] - eta[place]
        cdf = np.mean(ordered <= grid[place])
        if step > 0:
            total += step * min(1, cdf + width)
        else:
            total += step * max(0, cdf - width)
    return total


scores_lists = st.lists(
    st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=12
)


@settings(max_examples=100)
@given(scores_lists, st.sampled_from([0.01, 0.05, 0.5]))
def test_the_vectorised_forms_equal_the_formulas(scores, alpha):
    """A twin by loops over the distinct points, for ties, zeros and ones in any order."""
    n = len(scores)
    ordered = np.sort(scores)
    width = math.sqrt(math.log(1 / alpha) / (2 * n))
    width_of_two_sides = math.sqrt(math.log(2 / alpha) / (2 * n))

    paper = paper_bounds(np.array(scores), alpha, [0.0, 0.25])

    upper, lower = mean_ends(ordered, np.union1d(ordered, [0.0, 1.0]), width, clip=True)
    assert paper.m_mu[0] == pytest.approx(upper, abs=1e-12)
    assert paper.m_mu_lower[0] == pytest.approx(max(0, lower), abs=1e-12)

    tails = [np.mean(ordered > threshold) for threshold in (0.0, 0.25)]
    assert paper.m_gen[0] == pytest.approx([min(1, tail + width) for tail in tails])
    assert paper.m_gen_lower[0] == pytest.approx([max(0, tail - width) for tail in tails])

    grid = np.union1d(ordered, np.linspace(0, 1, 101))
    variance = naive_variance_upper(ordered, grid, width_of_two_sides)
    assert paper.m_sigma[0] == pytest.approx(math.sqrt(variance), abs=1e-9)


@settings(max_examples=25)
@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, None]), min_size=1, max_size=6))
def test_missing_scores_are_bounded_wherever_they_lie(values):
    """Each bound at its worst is at least as wide as with any values for the missing scores."""
    scores = np.array(values, dtype=float)
    missing = np.isnan(scores)
    thresholds = [0.0, 0.5, 1.0]

    paper = paper_bounds(scores, 0.05, thresholds, missing="worst")
    sharp = tighter_bounds(scores, 0.05, thresholds, missing="worst")
    sd_upper = bounds.sd_upper(scores, 0.05, missing="worst")

    for filling in itertools.product([0.0, 0.5, 1.0], repeat=min(int(missing.sum()), 3)):
        filled = scores.copy()
        if filling:
            filled[missing] = np.resize(filling, missing.sum())
        paper_of_filled = paper_bounds(filled, 0.05, thresholds)
        sharp_of_filled = tighter_bounds(filled, 0.05, thresholds)
        assert paper.m_mu[0] >= paper_of_filled.m_mu[0] - 1e-12
        assert paper.m_mu_lower[0] <= paper_of_filled.m_mu_lower[0] + 1e-12
        assert (paper.m_gen >= paper_of_filled.m_gen - 1e-12).all()
        assert (paper.m_gen_lower <= paper_of_filled.m_gen_lower + 1e-12).all()
        assert paper.m_sigma[0] >= paper_of_filled.m_sigma[0] - 1e-12
        assert (sharp.exceedance >= sharp_of_filled.exceedance - 1e-12).all()
        assert sd_upper[0] >= bounds.sd_upper(filled, 0.05)[0] - 1e-12
        if not missing.any():
            assert sharp.sd_upper == sharp_of_filled.sd_upper


@pytest.mark.parametrize("function", [paper_bounds, tighter_bounds])
def test_many_prompts_in_one_call_have_the_bounds_of_each_alone(function):
    rng = np.random.default_rng(0)
    scores = np.where(rng.random((7, 50)) < 0.5, 0, rng.random((7, 50)))

    together = vars(function(scores, 0.05, [0.1, 0.5]))

    for place, row in enumerate(scores):
        alone = vars(function(row, 0.05, [0.1, 0.5]))
        for name, value in alone.items():
            if not isinstance(value, np.ndarray) or name == "thresholds":
                continue
            of_row = pytest.approx(together[name][place], nan_ok=True, rel=1e-9)
            assert value[0] == of_row, name


def naive_betting(scores, alpha, mean, recomputed=True):
    """The largest log capital against "the mean is at least ``mean``" at the end of a block, score by score."""
    n = len(scores)
    goal = math.log(1 / alpha)
    length = min(math.ceil(n / 24), 128) if recomputed else 1
    best = 0.0
    log_capital = 0.0
    first, second, third = 0.5, 0.5, 0.5  # sums of powers, with one prior observation of each

    for t, score in enumerate(scores):
        if t % length == 0:
            centre = first / (t + 1)
            variance = second / (t + 1) - centre**2
            skewness = (third / (t + 1) - 3 * centre * second / (t + 1) + 2 * centre**3) / variance
            wanted = max(goal - log_capital, 0.3) if recomputed else goal
            left = n - t if recomputed else n
            stake = math.sqrt(2 * wanted / (left * variance))
            correction = min(max(1 + 2 / 3 * skewness * stake, 0.5), 1.5)
            stake = min(stake / correction, 0.9 / (1 - mean))
        log_capital += math.log1p(stake * (mean - score))
        if (t + 1) % length == 0 or t + 1 == n:
            best = max(best, log_capital)
        first += score
        second += score**2
        third += score**3
    return best


@pytest.mark.parametrize("law", LAWS[2:], ids=lambda law: law.name)
@pytest.mark.parametrize("recomputed", [True, False])
def test_betting_stops_where_its_naive_twin_does(law, recomputed):
    scores = law.draw(np.random.default_rng(3), 200)
    goal = math.log(1 / 0.05)

    bound = betting.mean_upper(scores, 0.05, recomputed)[0]

    refuted = min(bound + 1e-8, 1 - 1e-12)
    assert naive_betting(scores, 0.05, refuted, recomputed) >= goal - 1e-6
    assert naive_betting(scores, 0.05, bound - 1e-6, recomputed) < goal


@pytest.mark.parametrize("n", [10, 300, 5000])
def test_betting_refutes_every_mean_above_its_bound(n):
    """Stakes that follow the capital need a proof that no larger mean survives: here on a grid."""
    rng = np.random.default_rng(n)
    repeated = rng.random((20, n)) < rng.random((20, 1))
    scores = np.where(repeated, rng.random((20, 1)), rng.random((20, n)))
    goal = math.log(1 / 0.05)
    sizes = betting._sizes(scores.T, np.full(20, n), recomputed=True)

    bound = betting.mean_upper(scores, 0.05)

    for mean in np.linspace(0, 1, 101)[1:-1]:
        means = np.full(20, mean)
        capital = betting._log_capital(
            means, scores.T, np.full(20, n), *sizes, goal, recomputed=True
        )
        np.testing.assert_array_equal(capital >= goal, bound <= mean)


def test_rows_share_a_search_and_keep_their_bounds(monkeypatch):
    scores = np.random.default_rng(3).beta(0.3, 2, (7, 40))
    lower_alone = [betting.mean_lower(row, 0.05)[0] for row in scores[:, None]]
    upper_alone = [betting.mean_upper(row, 0.05)[0] for row in scores[:, None]]
    monkeypatch.setattr(betting, "TOGETHER", 100)  # two rows of 21
    squares = betting.predictable_squares(scores)

    lower, upper, variance = betting.all_ends(scores, scores, 0.05, squares)

    assert list(lower) == lower_alone
    assert list(upper) == upper_alone
    assert np.array_equal(np.sqrt(variance), tighter_bounds(scores, 0.05, [0.5]).sd_upper)


@pytest.mark.parametrize("together", [betting.TOGETHER, 3 * 700])
def test_rows_of_unequal_length_share_a_search_and_keep_their_bounds(together, monkeypatch):
    monkeypatch.setattr(betting, "TOGETHER", together)
    rng = np.random.default_rng(8)
    rows = []
    for n in (1, 2, 23, 24, 25, 48, 49, 200, 211, 3000, 3100, 3333, 3400):
        rows += [(rng.random(n) < 0.1) * 1.0, rng.beta(2, 5, n), np.zeros(n)]
    rows[10][3] = np.nan

    ends = betting.ends_of_rows(rows, 0.05)

    for place, row in enumerate(rows):
        low = np.nan_to_num(row[None], nan=0.0)
        high = np.nan_to_num(row[None], nan=1.0)
        squares = betting.predictable_squares(row[None])
        alone = betting.all_ends(low, high, 0.05, squares)
        assert [ends.mean_lower[place]] == alone[0]
        assert [ends.mean_upper[place]] == alone[1]
        assert [ends.squares[place]] == alone[2]


def test_stakes_that_see_the_draw_they_bet_on_miss_far_more_often():
    """The control: coins in an order chosen with sight of the draws."""
    coins = (np.random.default_rng(31).random((4000, 500)) < 0.5) * 1.0
    peeking = np.sort(coins, axis=1)

    assert np.mean(betting.mean_upper(peeking, 0.05) < 0.5) > 0.2


def test_the_band_level_is_the_simulated_one():
    """Order statistics of uniforms cross the Berk-Jones band with probability alpha."""
    lower = bands.berk_jones(20, bands.berk_jones_eta(20, 0.2))
    uniforms = np.sort(np.random.default_rng(5).random((40_000, 20)), axis=1)

    crossed = np.mean((uniforms < lower).any(axis=1))

    assert crossed == pytest.approx(0.2, abs=3 * math.sqrt(0.16 / 40_000))


def naive_crossing(lower):
    """Going down from 1, the first crossing is found by subtraction: another algorithm, accurate for small n."""

    def chance(draws, share, hits):
        return math.comb(draws, hits) * share**hits * (1 - share) ** (draws - hits)

    n = len(lower)
    first_at = {}
    for place in range(n, 0, -1):
        here = chance(n, 1 - lower[place - 1], n - place)
        for later, probability in first_at.items():
            if lower[later - 1] > 0:
                share = 1 - lower[place - 1] / lower[later - 1]
                here -= probability * chance(later, share, later - place)
        first_at[place] = here
    return sum(first_at.values())


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_crossing_probability_equals_its_naive_twin(levels):
    lower = np.sort(levels)

    assert bands.crossing(lower) == pytest.approx(naive_crossing(lower), abs=1e-9)


def naive_sd_upper(scores, alpha):
    """The smallest, over many centres, of the largest mean square around the centre."""
    n = len(scores)
    width = bands.dkw(n, alpha, 2)
    padded = np.concatenate([[0], np.sort(scores), [1]])
    levels = (np.arange(20_000) + 0.5) / 20_000
    lowest = padded[np.clip(np.ceil((levels - width) * n), 0, n + 1).astype(int)]
    highest = padded[np.clip(np.ceil((levels + width) * n), 0, n + 1).astype(int)]

    variances = []
    for centre in np.linspace(0, 1, 401):
        farthest = np.maximum((lowest - centre) ** 2, (highest - centre) ** 2)
        variances.append(farthest.mean())
    return math.sqrt(min(variances))


def test_the_minimax_sd_equals_its_naive_twin():
    rng = np.random.default_rng(8)

    for scores in (rng.random(12), rng.integers(0, 3, 9) / 2, np.zeros(5), np.ones(1)):
        sd_upper = bounds.sd_upper(scores, 0.05)[0]

        assert sd_upper == pytest.approx(naive_sd_upper(scores, 0.05), abs=1e-3)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("n", [16, 128])
def test_coverage(law, n):
    """The quick part of `make coverage`."""
    for name, share in misses(law, n, alpha=0.05, runs=400, seed=11):
        assert share <= tolerated(0.05, 400), name


@pytest.mark.parametrize("n", [1, 50])
@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_bounds_of_constant_scores_hold_their_value(value, n):
    scores = np.full(n, value)

    paper = paper_bounds(scores, 0.05, [0.0, 1.0])
    sharp = tighter_bounds(scores, 0.05, [0.0, 1.0])

    assert paper.sd[0] == pytest.approx(0, abs=1e-12)
    assert paper.m_mu_lower[0] <= value <= paper.m_mu[0] <= 1
    assert sharp.mean_lower[0] <= value <= sharp.mean_upper[0] <= 1
    assert (sharp.exceedance[0] <= 1).all()
    assert math.isnan(paper.m_bin[0]) == (value == 0.3)


def test_above_the_largest_berk_jones_the_band_is_dkw_and_says_so():
    scores = np.random.default_rng(0).random(20_001)

    sharp = tighter_bounds(scores, 0.05, [0.5, 0.001])

    assert sharp.exceedance_method == "dkw"
    assert sharp.exceedance[0, 1] == 1  # fewer draws lie below than the band is wide
    assert sharp.exceedance[0, 0] == pytest.approx(paper_bounds(scores, 0.05, [0.5]).m_gen[0, 0])
