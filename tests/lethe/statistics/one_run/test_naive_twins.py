"""Each fast method against a slow one written directly from its formula."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.stats import beta, binom, laplace, norm

from lethe.registry import ONE_RUN_METHODS
from lethe.statistics.one_run.channel import ApproxDP, Gaussian, Laplace, SubsampledGaussian
from lethe.statistics.one_run.counts import Counts, log_cdf
from lethe.statistics.one_run.methods import _rank_rates, rank_error_rates
from lethe.statistics.one_run.tradeoff import Atoms

chernoff, exact, mahloujifar, steinke = (
    ONE_RUN_METHODS[name] for name in ("chernoff", "exact", "mahloujifar", "steinke")
)
NULLS = [Gaussian(1.0), Laplace(0.7), ApproxDP(1.0, 0.05), SubsampledGaussian(2.0, 0.5)]
COUNTS = [Counts(40, 10, 1), Counts(60, 59, 20), Counts(25, 5, 0)]
KINDS = [type(null).__name__ for null in NULLS]


@pytest.mark.parametrize(
    ("null", "p", "q"),
    [
        (Gaussian(1.0), norm(0), [(1.0, norm(1))]),
        (Laplace(0.7), laplace(0), [(1.0, laplace(0.7))]),
        (SubsampledGaussian(2.0, 0.5), norm(0), [(0.5, norm(0)), (0.5, norm(2))]),
    ],
)
def test_a_channel_is_the_limit_of_fine_atoms(null, p, q):
    x = np.linspace(-20, 22, 400_001)
    atoms = Atoms(*(np.diff(sum(w * part.cdf(x) for w, part in side)) for side in ([(1.0, p)], q)))
    s = np.linspace(0.01, 0.99, 50)
    for name in ("error_mass", "error_rate"):
        assert getattr(null, name)(s) == pytest.approx(getattr(atoms, name)(s), abs=1e-4), name
    for right in s[s < 0.6]:
        assert null.least_errors(right) == pytest.approx(atoms.least_errors(right), abs=1e-4)
    if not isinstance(null, SubsampledGaussian):  # whose tangents end at s = 1
        assert null.least_errors(1.0) == pytest.approx(1)
    assert null.epsilon(0.01) == pytest.approx(atoms.epsilon(0.01), abs=1e-3)


@pytest.mark.parametrize("null", NULLS, ids=KINDS)
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_exact_is_its_integral(counts, null):
    n, r, u = counts.n, counts.r, counts.errors

    def integrand(s):
        rate = float(null.error_mass(np.array([s]))[0]) / s
        return binom.cdf(u, r, rate) * beta.pdf(s, r + 1, n - r)

    cuts = [s for s in null.breaks if 0 < s < 1] or None
    slow = quad(integrand, 1e-9, 1 - 1e-12, points=cuts, limit=300, epsabs=1e-14, epsrel=1e-9)[0]
    assert math.exp(exact.log_p_value(counts, null)) == pytest.approx(slow, rel=1e-7)


@pytest.mark.parametrize("null", NULLS, ids=KINDS)
@pytest.mark.parametrize("counts", [*COUNTS, Counts(400, 200, 40)], ids=str)
def test_mahloujifar_is_its_recursion(counts, null):
    n, r, v = counts.n, counts.r, counts.correct

    def rejects(tau):
        right, wrong = tau * v / n, tau * (r - v) / n
        for i in range(v - 1, -1, -1):
            more = max(wrong, null.least_errors(right))
            right, wrong = right + i / (r - i) * (more - wrong), more
        return right + wrong > r / n

    p = math.exp(mahloujifar.log_p_value(counts, null))
    assert p == 1 or (rejects(p * (1 + 1e-6)) and not rejects(p * (1 - 1e-6)))
    for log_tau in (-8.0, -3.0, -1.0, -0.1):
        assert mahloujifar.rejects(counts, null, log_tau) == rejects(math.exp(log_tau))


def test_the_deep_tail_is_its_sum_of_whole_numbers():
    n, u = 4000, 1000
    tail = sum(math.comb(n, k) * 3**k for k in range(u + 1))
    assert log_cdf(u, n, np.array([0.75]))[0] == pytest.approx(math.log(tail) - n * math.log(4), rel=1e-12)


def _largest_level(counts: Counts, pieces: list[tuple[float, float]]) -> float:
    """The largest P(right >= v) that per-bit f-DP allows, by linear programming over the number of right guesses.

    ``pieces`` are lines (slope, intercept) whose maximum is the least wrong mass for a right mass. Averaged over the bits,
    flipping one turns a right guess among k right ones into a wrong one beside k - 1: for every k the wrong mass of
    runs with at least k - 1 right must be at least f's for the right mass of runs with at least k.
    """
    n, r, v = counts.n, counts.r, counts.correct
    right = np.arange(r + 1)
    rows, limits = [], []
    for k in range(1, r + 1):
        correct, wrong = np.where(right >= k, right, 0) / n, np.where(right >= k - 1, r - right, 0) / n
        for slope, intercept in pieces:
            rows.append(slope * correct - wrong)
            limits.append(-intercept)
    solved = linprog(-(right >= v).astype(float), rows, limits, [np.ones(r + 1)], [1.0], method="highs")
    assert solved.status == 0
    return -solved.fun


@pytest.mark.parametrize("counts", [*COUNTS, Counts(12, 12, 3)], ids=str)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (0.5, 0.0), (3.0, 0.01)])
def test_mahloujifar_is_the_maximum_of_its_linear_program(counts, epsilon, delta):
    odds = math.exp(epsilon)
    pieces = [(1 / odds, -delta / odds), (odds, 1 - delta - odds)]  # that no mass is negative is the third
    level = math.exp(mahloujifar.log_p_value(counts, ApproxDP(epsilon, delta)))
    assert level == pytest.approx(_largest_level(counts, [(0.0, 0.0), *pieces]), rel=1e-6)


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 1e-4), (2.0, 1e-2)])
def test_steinke_is_its_sum(counts, epsilon, delta):
    n, r, v = counts.n, counts.r, counts.correct
    law = binom(r, 1 / (1 + math.exp(-epsilon)))
    largest = max((sum(law.pmf(k) for k in range(v - i, v)) / i) for i in range(1, v + 1))
    slow = min(1.0, law.sf(v - 1) + 2 * n * delta * largest)
    assert math.exp(steinke.log_p_value(counts, epsilon, delta)) == pytest.approx(slow, rel=1e-9)


@pytest.mark.parametrize("null", NULLS, ids=KINDS)
def test_the_integral_over_the_middle_ranks_is_their_sum(null):
    rates, weights = rank_error_rates(null, 3000, 2000)
    assert weights @ rates == pytest.approx(_rank_rates(null, 3000, np.arange(1.0, 2001)).sum(), rel=1e-7)


@pytest.mark.parametrize("null", NULLS, ids=KINDS)
def test_chernoff_is_its_minimum_over_simulated_rates(null):
    """The error rates by rank come from simulated order statistics, the minimum from a grid."""
    n, r, u = 40, 10, 1
    s = np.sort(np.random.default_rng(0).random((100_000, n)), axis=1)[:, :r]
    rates = null.error_rate(s.ravel()).reshape(s.shape).mean(axis=0)
    tilt = np.linspace(-20, 0, 4001)[:, None]
    slow = float(np.min(-tilt[:, 0] * u + np.log1p(rates * np.expm1(tilt)).sum(axis=1)))
    assert chernoff.log_p_value(Counts(n, r, u), null) == pytest.approx(min(0.0, slow), abs=0.01)


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.1, 0.3, 0.45])
@pytest.mark.parametrize(("mu", "q"), [(2.0, 0.5), (0.5, 0.1), (4.0, 0.9)])
def test_the_subsampled_gaussians_epsilon_is_where_its_hockey_stick_is_delta(mu, q, delta):
    x = np.linspace(-12, 14, 400_001)
    p = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    other = (1 - q) * p + q * np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
    epsilon = SubsampledGaussian(mu, q).epsilon(delta)

    def excess(one, two):
        return float(np.maximum(one - math.exp(epsilon) * two, 0).sum() * (x[1] - x[0]))

    largest = excess(other, p)
    assert excess(p, other) <= largest + 1e-12  # Zhu, Dong and Wang (2022)
    assert largest <= delta * (1 + 1e-4)
    assert epsilon == 0 or largest == pytest.approx(delta, rel=1e-4)
