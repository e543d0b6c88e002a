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


def grid(params: dict) -> np.ndarray:
    return (
        np.array(params["tau"]) if "tau" in params else np.linspace(0, 1, params["linspace_points"])
    )


def sums(x, tau, e, clip):
    """(upper, lower) of the mean on a grid, in the paper's form: F_n at the left and at the right end of a cell."""
    cdf = np.searchsorted(x, tau, side="right") / len(x)
    below, above = cdf - e, cdf + e
    if clip:
        below, above = np.maximum(below, 0), np.minimum(above, 1)
    return 1 - np.diff(tau) @ below[:-1], 1 - np.diff(tau) @ above[1:]


def sign_taken_literally(x, tau, alpha):
    """The printed M_sigma squared with sign() as a sign, which its proof does not mean: a negative control."""
    cdf, e = np.searchsorted(x, tau, side="right") / len(x), bands.dkw(len(x), alpha, sides=2)
    farthest = np.maximum.reduce(
        [np.square(tau - centre) for centre in sums(x, tau, e, clip=False)]
    )
    eta = np.maximum(farthest[:-1], farthest[1:])
    steps = eta[:-1] - eta[1:]
    sign, above, below = np.sign(steps), (cdf + e)[1:-1], (cdf - e)[1:-1]
    return eta[-1] + steps @ (sign * above + (1 - sign) * below) - eta[0] * (cdf[0] - e)


ROUTES = {
    "M_bin": lambda c, x, a: bounds.binary_upper(c["input"]["S"], c["input"]["n"], a),
    "dkw_eps_one_sided": lambda c, x, a: bands.dkw(c["input"]["n"], a),
    "dkw_eps_two_sided": lambda c, x, a: bands.dkw(c["input"]["n"], a, sides=2),
    "sample_size_one_sided": lambda c, x, a: samples_for_width(c["input"]["eps"], a),
    "sample_size_two_sided": lambda c, x, a: samples_for_width(c["input"]["eps"], a, sides=2),
    "M_gen_unclipped": lambda c, x, a: (
        bounds.tail(x[None], [c["params"]["x"]])[0, 0] + bands.dkw(len(x), a)
    ),
    "M_gen_clipped": lambda c, x, a: paper_bounds(x, a, [c["params"]["x"]]).m_gen[0, 0],
    "M_mu_upper_printed": lambda c, x, a: printed.printed_mean(x, grid(c["params"]), a, clip=False)[
        0
    ],
    "mu_lower_printed": lambda c, x, a: printed.printed_mean(x, grid(c["params"]), a, clip=False)[
        1
    ],
    "M_mu_upper_clipped": lambda c, x, a: printed.printed_mean(x, grid(c["params"]), a)[0],
    "mu_lower_clipped": lambda c, x, a: printed.printed_mean(x, grid(c["params"]), a)[1],
    "M_mu_upper_onesided_exactgrid": lambda c, x, a: paper_bounds(x, a, [0.5]).m_mu[0],
    "M_sigma_sq_corrected": lambda c, x, a: printed.grid_variance_upper(
        x, grid(c["params"]), bands.dkw(len(x), a, 2)
    ),
    "M_sigma_sq_printed_indicator": lambda c, x, a: printed.printed_variance_no_bound(
        x, grid(c["params"]), a
    ),
    "conbo_variance_upper": lambda c, x, a: printed.printed_variance_no_bound(
        x, grid(c["params"]), a
    ),
    "M_sigma_sq_printed_sign": lambda c, x, a: sign_taken_literally(x, grid(c["params"]), a),
    "sigma_sq_upper_minimax_dkw": lambda c, x, a: bounds.sd_upper(x, a)[0] ** 2,
    "ED_score": lambda c, x, a: paper_bounds(x, 0.01, [0.5], c["params"]["rho"]).ed_score[0],
    "bj_one_sided_eta": lambda c, x, a: bands.berk_jones_eta(c["input"]["n"], a),
    "bj_one_sided_level_coverage": lambda c, x, a: (
        1 - bands.crossing(bands.berk_jones(c["input"]["n"], c["params"]["eta"]))
    ),
    "M_mu_upper_BJ": lambda c, x, a: (
        1 - np.diff(x, append=1) @ bands.berk_jones(len(x), c["params"]["eta"])
    ),
}
# The first is one capital with stakes that do not follow it: see the naive twin below.
NOT_REQUIRED = {
    "mu_upper_betting_prpl",
    "sigma_upper_betting_pred_centre",
    "mu_upper_hoeffding_bentkus",
}
NOT_REQUIRED |= {"mu_upper_maurer_pontil", "sigma_upper_maurer_pontil", "noncross_prob_ks"}


def test_every_required_oracle(shared):
    cases = json.loads((shared / "oracles/bounds.json").read_text())["cases"]
    checked = 0
    for case in cases:
        if case["metric"] in NOT_REQUIRED:
            continue
        x = np.sort(drawn(case)) if "x" in case["input"] or "generator" in case["input"] else None
        got = ROUTES[case["metric"]](case, x, case["params"].get("alpha"))
        rel = 1e-6 if case["metric"] == "bj_one_sided_eta" else 1e-9
        assert float(got) == pytest.approx(case["expected"], rel=rel, abs=1e-12), case["id"]
        checked += 1
    assert checked > 100


def test_known_values():
    assert bounds.binary_upper(0, 1024, 0.01) == pytest.approx(0.004487139084149817, rel=1e-12)
    assert bounds.binary_upper(3, 20, 0.05) == pytest.approx(0.3436638043142818, rel=1e-12)
    assert bounds.binary_upper(20, 20, 0.05) == 1.0
    assert bounds.binary_lower(0, 20, 0.05) == 0.0
    assert bounds.binary_lower(20, 20, 0.05) == pytest.approx(0.05 ** (1 / 20))
    assert bands.dkw(1024, 0.01) == pytest.approx(0.04741959779328583, rel=1e-12)
    assert bands.berk_jones_eta(128, 0.01) == pytest.approx(0.00035076028542467737, rel=1e-9)
    assert betting.mean_upper(SMALL[::-1], 0.01)[0] == pytest.approx(0.8396187381027376, rel=1e-8)
    tighter = tighter_bounds(SMALL, 0.01, [0.5])
    assert tighter.sd_upper[0] == pytest.approx(0.6971903410180416, rel=1e-8)
    assert tighter.thresholds == [0.5]
    assert paper_bounds(np.zeros(5), 0.01, [0.0]).m_gen[0, 0] == pytest.approx(
        0.6786140424415112, rel=1e-12
    )


scores_lists = st.lists(
    st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=12
)


@settings(max_examples=100)
@given(scores_lists, st.sampled_from([0.01, 0.05, 0.5]))
def test_the_vectorised_forms_equal_the_formulas(values, alpha):
    """A twin by loops over the distinct points, for ties, zeros and ones in any order."""
    x, n = np.sort(values), len(values)
    e1, e2 = math.sqrt(math.log(1 / alpha) / (2 * n)), math.sqrt(math.log(2 / alpha) / (2 * n))
    got = paper_bounds(np.array(values), alpha, [0.0, 0.25])
    tau = np.union1d(x, [0.0, 1.0])
    upper, lower = sums(x, tau, e1, clip=True)
    assert got.m_mu[0] == pytest.approx(upper, abs=1e-12)
    assert got.m_mu_lower[0] == pytest.approx(max(0, lower), abs=1e-12)
    assert got.m_gen[0] == pytest.approx([min(1, np.mean(x > t) + e1) for t in (0.0, 0.25)])
    assert got.m_gen_lower[0] == pytest.approx([max(0, np.mean(x > t) - e1) for t in (0.0, 0.25)])
    tau = np.union1d(x, np.linspace(0, 1, 101))
    high, low = sums(x, tau, e2, clip=True)
    eta = [
        max((k - m) ** 2 for k in (tau[i], tau[i + 1]) for m in (low, high))
        for i in range(len(tau) - 1)
    ]
    total = eta[-1]
    for i in range(1, len(tau) - 1):
        step, cdf = eta[i - 1] - eta[i], np.mean(x <= tau[i])
        total += step * (min(1, cdf + e2) if step > 0 else max(0, cdf - e2))
    assert got.m_sigma[0] == pytest.approx(math.sqrt(total), abs=1e-9)


@settings(max_examples=25)
@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, None]), min_size=1, max_size=6))
def test_missing_scores_are_bounded_wherever_they_lie(values):
    """Each bound at its worst is at least as wide as with any values for the missing scores."""
    x, cuts = np.array(values, dtype=float), [0.0, 0.5, 1.0]
    absent = np.isnan(x)
    paper, sharp = (
        paper_bounds(x, 0.05, cuts, missing="worst"),
        tighter_bounds(x, 0.05, cuts, missing="worst"),
    )
    spread = bounds.sd_upper(x, 0.05, missing="worst")
    for filling in itertools.product([0.0, 0.5, 1.0], repeat=min(int(absent.sum()), 3)):
        full = x.copy()
        full[absent] = np.resize(filling, absent.sum()) if filling else []
        whole, sharp_whole = paper_bounds(full, 0.05, cuts), tighter_bounds(full, 0.05, cuts)
        assert paper.m_mu[0] >= whole.m_mu[0] - 1e-12
        assert paper.m_mu_lower[0] <= whole.m_mu_lower[0] + 1e-12
        assert (paper.m_gen >= whole.m_gen - 1e-12).all()
        assert (paper.m_gen_lower <= whole.m_gen_lower + 1e-12).all()
        assert paper.m_sigma[0] >= whole.m_sigma[0] - 1e-12
        assert (sharp.exceedance >= sharp_whole.exceedance - 1e-12).all()
        assert spread[0] >= bounds.sd_upper(full, 0.05)[0] - 1e-12
        if not absent.any():
            assert sharp.sd_upper == sharp_whole.sd_upper


def test_many_prompts_in_one_call_are_each_alone():
    rng = np.random.default_rng(0)
    scores = np.where(rng.random((7, 50)) < 0.5, 0, rng.random((7, 50)))
    for function in (paper_bounds, tighter_bounds):
        together = function(scores, 0.05, [0.1, 0.5])
        for i in range(7):
            alone = function(scores[i], 0.05, [0.1, 0.5])
            for name, value in vars(alone).items():
                if isinstance(value, np.ndarray) and name != "thresholds":
                    assert value[0] == pytest.approx(
                        getattr(together, name)[i], nan_ok=True, rel=1e-9
                    ), name


def naive_betting(x, alpha, m, recomputed=True):
    """The largest log capital against "the mean is at least m" at the end of a block, sample by sample."""
    n, goal, best, log = len(x), math.log(1 / alpha), 0.0, 0.0
    length = min(math.ceil(n / 24), 128) if recomputed else 1
    first, second, third = 0.5, 0.5, 0.5  # sums of powers, with one prior observation of each
    for t, value in enumerate(x):
        if t % length == 0:
            centre, missing = first / (t + 1), max(goal - log, 0.3) if recomputed else goal
            variance = second / (t + 1) - centre**2
            skewness = (third / (t + 1) - 3 * centre * second / (t + 1) + 2 * centre**3) / variance
            stake = math.sqrt(2 * missing / ((n - t if recomputed else n) * variance))
            stake = min(stake / min(max(1 + 2 / 3 * skewness * stake, 0.5), 1.5), 0.9 / (1 - m))
        log += math.log1p(stake * (m - value))
        if (t + 1) % length == 0 or t + 1 == n:
            best = max(best, log)
        first, second, third = first + value, second + value**2, third + value**3
    return best


@pytest.mark.parametrize("law", LAWS[2:], ids=lambda law: law.name)
@pytest.mark.parametrize("recomputed", [True, False])
def test_betting_stops_where_its_naive_twin_does(law, recomputed):
    x = law.draw(np.random.default_rng(3), 200)
    bound = betting.mean_upper(x, 0.05, recomputed)[0]
    goal = math.log(1 / 0.05)
    assert naive_betting(x, 0.05, min(bound + 1e-8, 1 - 1e-12), recomputed) >= goal - 1e-6
    assert naive_betting(x, 0.05, bound - 1e-6, recomputed) < goal


@pytest.mark.parametrize("n", [10, 300, 5000])
def test_betting_refutes_every_mean_above_its_bound(n):
    """Stakes that follow the capital need a proof that no larger mean survives: here on a grid."""
    rng = np.random.default_rng(n)
    x = np.where(
        rng.random((20, n)) < rng.random((20, 1)), rng.random((20, 1)), rng.random((20, n))
    )
    bound, goal = betting.mean_upper(x, 0.05), math.log(1 / 0.05)
    lengths = np.full(20, n)
    sizes = betting._sizes(x.T, lengths, recomputed=True)
    for mean in np.linspace(0, 1, 101)[1:-1]:
        means = np.full(20, mean)
        capital = betting._log_capital(means, x.T, lengths, *sizes, goal, recomputed=True)
        np.testing.assert_array_equal(capital >= goal, bound <= mean)


def test_rows_share_a_search_and_keep_their_bounds(monkeypatch):
    scores = np.random.default_rng(3).beta(0.3, 2, (7, 40))
    alone = [
        (betting.mean_lower(row, 0.05)[0], betting.mean_upper(row, 0.05)[0])
        for row in scores[:, None]
    ]
    monkeypatch.setattr(betting, "TOGETHER", 100)  # two rows of 21
    low, high, spread = betting.all_ends(scores, scores, 0.05, betting.predictable_squares(scores))
    assert list(zip(low, high, strict=True)) == alone
    assert np.array_equal(np.sqrt(spread), tighter_bounds(scores, 0.05, [0.5]).sd_upper)


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
    peeking = np.sort((np.random.default_rng(31).random((4000, 500)) < 0.5) * 1.0, axis=1)
    assert np.mean(betting.mean_upper(peeking, 0.05) < 0.5) > 0.2


def test_the_band_level_is_the_simulated_one():
    """Order statistics of uniforms cross the Berk-Jones band with probability alpha."""
    lower = bands.berk_jones(20, bands.berk_jones_eta(20, 0.2))
    uniforms = np.sort(np.random.default_rng(5).random((40_000, 20)), axis=1)
    crossed = np.mean((uniforms < lower).any(axis=1))
    assert crossed == pytest.approx(0.2, abs=3 * math.sqrt(0.16 / 40_000))


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_crossing_probability_equals_its_naive_twin(levels):
    """Going down from 1, the first crossing is found by subtraction: another algorithm, accurate for small n."""
    lower, n = np.sort(levels), len(levels)

    def chance(draws, share, hits):
        return math.comb(draws, hits) * share**hits * (1 - share) ** (draws - hits)

    first = {}
    for i in range(n, 0, -1):
        first[i] = chance(n, 1 - lower[i - 1], n - i) - sum(
            first[j] * chance(j, 1 - lower[i - 1] / lower[j - 1], j - i)
            for j in first
            if lower[j - 1] > 0
        )
    assert bands.crossing(lower) == pytest.approx(sum(first.values()), abs=1e-9)


def test_the_minimax_sd_equals_its_naive_twin():
    """The smallest, over many centres, of the largest mean square around the centre."""
    rng = np.random.default_rng(8)
    for x in (rng.random(12), rng.integers(0, 3, 9) / 2, np.zeros(5), np.ones(1)):
        n, e, padded = len(x), bands.dkw(len(x), 0.05, 2), np.concatenate([[0], np.sort(x), [1]])
        levels = (np.arange(20_000) + 0.5) / 20_000
        low = padded[np.clip(np.ceil((levels - e) * n), 0, n + 1).astype(int)]
        high = padded[np.clip(np.ceil((levels + e) * n), 0, n + 1).astype(int)]
        least = min(
            np.maximum((low - a) ** 2, (high - a) ** 2).mean() for a in np.linspace(0, 1, 401)
        )
        assert bounds.sd_upper(x, 0.05)[0] == pytest.approx(math.sqrt(least), abs=1e-3)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("n", [16, 128])
def test_coverage(law, n):
    """The quick part of `make coverage`."""
    for name, share in misses(law, n, alpha=0.05, runs=400, seed=11):
        assert share <= tolerated(0.05, 400), name


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_one_sample_and_constant_scores_are_defined(value):
    for n in (1, 50):
        paper = paper_bounds(np.full(n, value), 0.05, [0.0, 1.0])
        sharp = tighter_bounds(np.full(n, value), 0.05, [0.0, 1.0])
        assert paper.sd[0] == pytest.approx(0, abs=1e-12)
        assert value <= paper.m_mu[0] <= 1
        assert paper.m_mu_lower[0] <= value
        assert value <= sharp.mean_upper[0] <= 1
        assert sharp.mean_lower[0] <= value
        assert (sharp.exceedance[0] <= 1).all()
        assert math.isnan(paper.m_bin[0]) == (value == 0.3)


def test_above_the_largest_berk_jones_the_band_is_dkw_and_says_so():
    scores = np.random.default_rng(0).random(20_001)
    sharp = tighter_bounds(scores, 0.05, [0.5, 0.001])
    assert sharp.exceedance_method == "dkw"
    assert sharp.exceedance[0, 1] == 1  # fewer draws lie below than the band is wide
    assert sharp.exceedance[0, 0] == pytest.approx(paper_bounds(scores, 0.05, [0.5]).m_gen[0, 0])
