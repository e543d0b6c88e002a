"""What the papers prove, checked by numbers: exact sums where the laws are known, simulations where they are not.

A check is a function without arguments that returns plain values; `CHECKS` names them. No check draws
a random number that its seed does not decide. Where a statement says *at most*, the value is the worst
case that the check could make, never an average.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

from lethe.audits import simulated
from lethe.audits.simulated import Counterexample
from lethe.io.files import Json
from lethe.statistics.bands import dkw
from lethe.statistics.bounds import binary_upper, paper_bounds
from lethe.statistics.epsilon_star.ratios import empirical_epsilon_star, largest, log_ratios
from lethe.statistics.one_run.channel import gaussian, laplace
from lethe.statistics.one_run.methods import chernoff_bound, rank_error_rates
from lethe.statistics.unlearning_game import (
    Split,
    certified_bound,
    draw_split,
    signed_advantage,
    swap_advantage,
)

SEED = 0
ALPHA = 0.01  # of the probabilistic paper
SIZES = (16, 128, 1024)  # draws per prompt
RUNS = 4_000
NULL_RUNS = 10_000  # runs of a true null: 5% is then known to .5%
MU = 1.0
DELTA = 1e-5
Values = dict[str, Json]


def _share(count: int, runs: int) -> Values:
    """A share of runs with its Clopper-Pearson interval of 95%."""
    interval = stats.binomtest(int(count), runs).proportion_ci()
    return {"mean": count / runs, "smallest": interval.low, "largest": interval.high}


def binary_leakage_bound() -> Values:
    """Proposition 1: the exact probability that M_bin misses p, at its worst over a grid of p."""
    worst = 0.0
    for n in SIZES:
        ends = binary_upper(np.arange(n + 1), n, ALPHA)
        # M_bin misses p most often just above one of its own values.
        for p in np.nextafter(ends[:-1], 1):
            misses = float(stats.binom.cdf(np.flatnonzero(ends < p).max(), n, p))
            worst = max(worst, misses)
    return {"alpha": ALPHA, "misses": round(worst, 10)}


def general_leakage_bound() -> Values:
    """Proposition 2: the exact probability that M_gen misses at some x, for a continuous law (Smirnov's law)."""
    misses = [float(stats.ksone.sf(dkw(n, ALPHA), n)) for n in SIZES]
    return {"alpha": ALPHA, "misses": max(misses)}


def two_sided_band() -> Values:
    """The band of both sides: the exact probability that it misses at some x, for a continuous law."""
    misses = [float(stats.kstwo.sf(dkw(n, ALPHA, sides=2), n)) for n in SIZES]
    return {"alpha": ALPHA, "misses": max(misses)}


def _laws() -> dict[
    str, tuple[Callable[[np.random.Generator, tuple[int, int]], np.ndarray], float, float]
]:
    """Laws on [0, 1]: how one draws, the mean and the standard deviation."""
    beta_sd = math.sqrt(10 / (49 * 8))
    return {
        "coin .5": (lambda rng, shape: rng.binomial(1, 0.5, shape).astype(float), 0.5, 0.5),
        "coin .01": (
            lambda rng, shape: rng.binomial(1, 0.01, shape).astype(float),
            0.01,
            math.sqrt(0.0099),
        ),
        "uniform": (lambda rng, shape: rng.random(shape), 0.5, math.sqrt(1 / 12)),
        "Beta(2, 5)": (lambda rng, shape: rng.beta(2, 5, shape), 2 / 7, beta_sd),
    }


def moment_bounds() -> Values:
    """Propositions 3 and 4 in Lethe's form: the share of runs in which M_mu or M_sigma misses, at its worst."""
    mean_misses = 0
    sd_misses = 0
    for draw, mean, sd in _laws().values():
        for n in SIZES:
            bounds = paper_bounds(
                draw(np.random.default_rng([SEED, n]), (RUNS, n)), ALPHA, np.array([0.5])
            )
            below = int(np.count_nonzero(bounds.m_mu < mean - 1e-9))
            above = int(np.count_nonzero(bounds.m_mu_lower > mean + 1e-9))
            mean_misses = max(mean_misses, below + above)
            sd_misses = max(sd_misses, int(np.count_nonzero(bounds.m_sigma < sd - 1e-9)))
    return {
        "alpha": ALPHA,
        "runs": RUNS,
        "M_mu, either end": _share(mean_misses, RUNS),
        "M_sigma": _share(sd_misses, RUNS),
    }


def printed_standard_deviation_bound() -> Values:
    """Metric 4 and Proposition 4 as printed, with the term -eta_0 F(tau_0), on fair coins."""
    n = 1024
    grid = np.linspace(0, 1, 101)
    coins = np.sort(_laws()["coin .5"][0](np.random.default_rng(SEED), (RUNS, n)), axis=1)
    misses = sum(_printed_variance(row, grid) < 0.25 for row in coins)
    return {"alpha": ALPHA, "runs": RUNS, "misses": _share(misses, RUNS)}


def _printed_variance(ordered: np.ndarray, grid: np.ndarray) -> float:
    e = dkw(len(ordered), ALPHA, sides=2)
    cdf = np.searchsorted(ordered, grid, side="right") / len(ordered)
    upper_band = np.minimum(cdf + e, 1)
    lower_band = np.maximum(cdf - e, 0)
    widths = np.diff(grid)
    least_mean = 1 - widths @ upper_band[1:]
    greatest_mean = 1 - widths @ lower_band[:-1]
    farthest = np.maximum(np.square(grid - least_mean), np.square(grid - greatest_mean))
    eta = np.maximum(farthest[:-1], farthest[1:])
    steps = eta[:-1] - eta[1:]
    banded = np.where(steps > 0, upper_band[1:-1], lower_band[1:-1])
    return float(eta[-1] - eta[0] * lower_band[0] + steps @ banded)


def laplace_trade_off() -> Values:
    """Lemma 1: the printed trade-off function of two Laplace laws beside that of their likelihood ratio test."""
    x = np.linspace(1e-4, 1 - 1e-4, 2001)
    law = stats.laplace()
    tested = law.cdf(law.isf(x) - MU)
    edge = math.exp(-MU) / 2
    printed = np.where(
        x < edge,
        1 - math.exp(MU) * x,
        np.where(x <= 0.5, math.exp(-MU) / (4 * x), math.exp(-MU) * (1 - x)),
    )
    return {"mu": MU, "largest difference": float(np.abs(tested - printed).max())}


def optimal_decoder() -> Values:
    """Lemma 2: errors of the threshold mu / 2 on a Gaussian bit, beside the formula and other thresholds."""
    rng = np.random.default_rng(SEED)
    n = 1_000_000
    bits = rng.integers(0, 2, n)
    outputs = bits * MU + rng.standard_normal(n)
    optimal = _share(int(np.count_nonzero((outputs > MU / 2) != bits)), n)
    others = []
    for threshold in np.concatenate([np.linspace(-3, 0.3, 20), np.linspace(0.7, 4, 20)]):
        others.append((ndtr(-threshold) + ndtr(threshold - MU)) / 2)
    return {"errors": optimal, "formula": float(ndtr(-MU / 2)), "best other": float(min(others))}


def conversion() -> Values:
    """Algorithm 2: epsilon of a Gaussian trade-off function on a grid, beside the closed form."""
    x = np.geomspace(1e-12, 1, 400_001)[:-1]
    beta = ndtr(ndtri(1 - x) - MU)
    left = 1 - DELTA - beta
    epsilon = float(np.log(left[left > 0] / x[left > 0]).max())
    return {
        "delta": DELTA,
        "algorithm": epsilon,
        "closed form": gaussian().channel(MU).epsilon(DELTA),
    }


def order_statistics() -> Values:
    """Theorem 2: simulated order statistics of uniforms against the printed density, by Kolmogorov-Smirnov."""
    rng = np.random.default_rng(SEED)
    cases = [(n, k) for n in (5, 50, 500) for k in (1, n // 2, n)]
    p_values = []
    for n, k in cases:
        drawn = np.sort(rng.random((RUNS, n)), axis=1)[:, k - 1]
        p_values.append(stats.kstest(drawn, stats.beta(k, n - k + 1).cdf).pvalue)
    return {"cases": len(cases), "smallest p times cases": min(1.0, min(p_values) * len(cases))}


def independent_channels() -> Values:
    """Theorem 3 and Proposition 1 where each bit has a channel of its own: a true null rejected at 5%."""
    values: Values = {"runs": NULL_RUNS, "nominal": 0.05}
    gauss = partial(simulated.gaussian, mu=MU)
    two_sided = partial(simulated.laplace, mu=MU)
    cases = {
        "Gaussian": Counterexample(gauss, gaussian().channel(MU), 1000, 200, DELTA),
        "Laplace": Counterexample(two_sided, laplace().channel(MU), 1000, 200, DELTA),
        "a bit is revealed with probability .005": simulated.COUNTEREXAMPLES["(0, delta) family"],
    }
    for name, case in cases.items():
        shares = simulated.false_rejections(case, NULL_RUNS, 0.05)
        values[name] = {
            method: _share(round(share * NULL_RUNS), NULL_RUNS) for method, share in shares.items()
        }
    return values


def tail_bound() -> Values:
    """Proposition 1: the printed exponential bound over the exact tail of independent errors, and Hoeffding's over it."""
    n = 200
    r = 100
    rates, weights = rank_error_rates(gaussian().channel(MU), n, r)
    rates = np.repeat(rates, np.round(weights).astype(int))
    mass = np.ones(1)
    for rate in rates:
        mass = np.convolve(mass, [1 - rate, rate])
    tails = np.cumsum(mass)
    below = []
    sharper = []
    for u in range(math.ceil(rates.sum())):
        bound = math.exp(chernoff_bound(u, rates, np.ones(rates.size)))
        hoeffding = 2 * math.exp(-2 * (rates.sum() - u) ** 2 / r)
        below.append(tails[u] / bound)
        sharper.append(bound / hoeffding)
    return {"tail over bound": round(float(max(below)), 10), "bound over Hoeffding": max(sharper)}


ADVERSARIES = 200
POINTS = 6  # a data set so small that all splits can be summed


def zero_grounding() -> Values:
    """Theorem 3.4: the advantage of random adversaries against Retrain, summed over all splits of six points."""
    rng = np.random.default_rng(SEED)
    largest = 0.0
    for _ in range(ADVERSARIES):
        # The model is any function of the retain set, the adversary any function of model and point.
        accepts = rng.random((2**POINTS, POINTS))
        largest = max(largest, abs(float(np.mean(_advantages(accepts)))))
    return {"adversaries": ADVERSARIES, "largest advantage": round(largest, 10)}


def chosen_sensitivity() -> Values:
    """Theorem 3.4 under chosen sensitivity distributions: the same sums, where the oracle shows some points more often."""
    rng = np.random.default_rng(SEED)
    largest = 0.0
    for _ in range(ADVERSARIES):
        accepts = rng.random((2**POINTS, POINTS))
        weights = rng.dirichlet(np.full(POINTS, 0.3))  # a few points have most of the weight
        largest = max(largest, abs(float(np.mean(_advantages(accepts, weights)))))
    return {"adversaries": ADVERSARIES, "largest advantage": round(largest, 10)}


def _advantages(accepts: np.ndarray, weights: np.ndarray | None = None) -> list[float]:
    """The signed advantage in each of the 90 splits; ``weights`` (POINTS,) are the sensitivities, None: uniform."""
    if weights is None:
        weights = np.ones(POINTS)
    signed = []
    for forget in itertools.combinations(range(POINTS), 2):
        rest = sorted(set(range(POINTS)) - set(forget))
        for test in itertools.combinations(rest, 2):
            model = sum(2**point for point in set(rest) - set(test))  # which set was retained
            shown = accepts[model]
            advantage = signed_advantage(
                shown[list(forget)],
                shown[list(test)],
                weights[list(forget)],
                weights[list(test)],
            )
            signed.append(advantage)
    return signed


def certified_removal() -> Values:
    """Theorem 3.6: the strongest advantage that certified removal allows on a swapped pair, over the printed bound.

    Retraining gives one of two models at random; unlearning tilts this law as far as (epsilon, delta)
    allows, towards one model for a split and towards the other for the split with forget and test swapped.
    """
    ratios = []
    for epsilon in np.linspace(0.01, 1.0, 34):
        for delta in (0.0, 1e-3, 0.05):
            tilted = min(math.exp(epsilon) / 2 + delta, 1 - (0.5 - delta) / math.exp(epsilon))
            ratios.append((2 * tilted - 1) / certified_bound(epsilon, delta).paper)
    return {"advantage over bound": max(ratios)}


def vacuous_budgets() -> Values:
    """Theorem 3.6: the printed bound on the advantage at the least epsilon beyond ln 3, and at the budgets of Table 1."""
    bounds: Values = {"ln 3": certified_bound(math.log(3)).paper}
    for epsilon in (1.1, 50, 150, 600):
        bounds[f"epsilon {epsilon:g}"] = certified_bound(epsilon).paper
    return bounds


def two_random_splits() -> Values:
    """Proposition 3.9: an adversary that knows two splits by heart, against retraining, by 4,000 plays of each."""
    rng = np.random.default_rng(SEED)
    first = draw_split(110, 0.1, rng)
    second = draw_split(110, 0.1, rng)
    return {
        "random splits": _by_heart([first, second], rng),
        "swapped pair": _by_heart([first, first.swapped()], rng),
    }


def _by_heart(splits: Sequence[Split], rng: np.random.Generator) -> float:
    """The advantage over two splits of a table of the points that were in one kind of set alone.

    The adversary never looks at the model: it asks the oracle until it gets a point of the table. If
    the table is empty, it answers 0.
    """
    forgotten = set().union(*(split.forget.tolist() for split in splits))
    tested = set().union(*(split.test.tolist() for split in splits))
    is_known = bool(forgotten - tested) and bool(tested - forgotten)
    halves = []
    for split in splits:
        accepted = []
        for shown in (split.forget, split.test):
            points = rng.choice(shown, (RUNS, 400))
            answers = np.isin(points, list(forgotten - tested))
            known = answers | np.isin(points, list(tested - forgotten))
            first_known = known.argmax(axis=1)
            answer = answers[np.arange(RUNS), first_known]
            accepted.append(answer & is_known)
        halves.append(np.array([signed_advantage(*accepted)]))
    original, swapped = halves
    return swap_advantage(original, swapped).value


def rejection_regions() -> Values:
    """Theorem 1 of the Epsilon* paper: every rejection region of randomised response that is (epsilon, delta)-DP."""
    slack = math.inf
    for epsilon, delta in itertools.product((0.1, 1.0, 3.0), (0.0, 1e-3, 0.1)):
        likely = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
        p = np.array([delta, likely, 1 - delta - likely, 0])
        for region in itertools.product((0, 1), repeat=4):
            false_positive = float(p @ region)
            false_negative = float(p[::-1] @ (1 - np.array(region)))
            for a, b in itertools.permutations((false_positive, false_negative)):
                slack = min(slack, a + math.exp(epsilon) * b - (1 - delta))
    return {"smallest slack": round(slack, 10)}


def model_bound() -> Values:
    """Appendix A.1: Epsilon* over a few thresholds beside the least epsilon of Definition 1, over all of them."""
    rng = np.random.default_rng(SEED)
    excess = -math.inf
    for _ in range(200):
        train = rng.gamma(2, 5, 200)
        population = rng.gamma(2.5, 5, 200)
        least = empirical_epsilon_star(train, population, 0.01).value
        chosen = np.quantile(population, rng.random(20))
        fpr = (population[:, None] <= chosen).mean(axis=0)
        tpr = (train[:, None] <= chosen).mean(axis=0)
        pairs = ((tpr, fpr), (1 - fpr, 1 - tpr), (1 - tpr, 1 - fpr), (fpr, tpr))
        largest = max(float(_ratio(*pair).max()) for pair in pairs)
        excess = max(excess, math.log(max(largest, 1.0)) - least)
    return {"draws": 200, "largest excess": round(excess, 10)}


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    above = np.maximum(top - 0.01, 0)
    return np.divide(above, bottom, out=np.zeros_like(above), where=bottom > 0)


def mechanism_bound() -> Values:
    """Theorem 2 of the Epsilon* paper: eps-bar minus ln E[e^(Epsilon*)], at its largest over random mechanisms.

    The population's losses are N(0, 1), a model's training losses N(-shift, scale): all rates are exact.
    """
    rng = np.random.default_rng(SEED)
    fpr = np.linspace(0.01, 0.99, 99)
    excess = []
    for _ in range(500):
        shifts = rng.normal(0.5, rng.uniform(0, 2), (8, 1))
        scales = rng.uniform(0.5, 2, (8, 1))
        fnr = ndtr(-(ndtri(fpr) + shifts) / scales)
        of_models = [largest(log_ratios((1 - row, row), (fpr, 1 - fpr), 0.01))[0] for row in fnr]
        mean = fnr.mean(axis=0)
        of_mechanism = largest(log_ratios((1 - mean, mean), (fpr, 1 - fpr), 0.01))[0]
        excess.append(of_mechanism - math.log(np.mean(np.exp(of_models))))
    return {"mechanisms": len(excess), "largest excess": round(max(excess), 10)}


def private_mean() -> Values:
    """Theorem 4 of the Epsilon* paper: eps-bar over epsilon of a private mean, over all its training sets and models.

    A record is 1 or -1 with probability 1/2, the model is the mean of n records plus noise, and the loss is the distance of
    a record from the model. Equations 14 and 15 are exact sums over the number of ones.
    """
    ratios = []
    for n, noise in itertools.product((1, 2, 10, 100), (0.5, 1.0, 3.0)):
        scale = 2 * noise / n  # 2 / n is how far another record can move the mean
        for delta in (0.0, 1e-5, 0.05):
            if delta:
                epsilon = gaussian().channel(1 / noise).epsilon(delta)
                law = stats.norm(scale=scale)
            else:
                epsilon = 1 / noise
                law = stats.laplace(scale=scale)
            ratios.append(_mechanism_epsilon(n, law, delta) / epsilon)
    return {"mechanisms": len(ratios), "largest ratio": round(max(ratios), 10)}


def _mechanism_epsilon(n: int, law: stats.distributions.rv_frozen, delta: float) -> float:
    """The smallest eps-bar of Equations 14 and 15 over 1,000 thresholds of the loss."""
    thresholds = np.geomspace(1e-4, 20, 1_000)
    train = np.zeros_like(thresholds)
    population = np.zeros_like(thresholds)
    for ones in range(n + 1):
        mean = 2 * ones / n - 1
        near_one = law.cdf(1 - mean + thresholds) - law.cdf(1 - mean - thresholds)
        near_other = law.cdf(-1 - mean + thresholds) - law.cdf(-1 - mean - thresholds)
        weight = stats.binom.pmf(ones, n, 0.5)
        train += weight * (ones * near_one + (n - ones) * near_other) / n
        population += weight * (near_one + near_other) / 2
    kept = train < 1 - 1e-4  # beyond, rounding of the share above would show
    train = train[kept]
    population = population[kept]
    logs = log_ratios((train, 1 - train), (population, 1 - population), delta)
    return largest(logs)[0]


CHECKS: dict[str, Callable[[], Values]] = {
    "probabilistic-proposition-1": binary_leakage_bound,
    "probabilistic-proposition-2": general_leakage_bound,
    "probabilistic-two-sided-band": two_sided_band,
    "probabilistic-propositions-3-4": moment_bounds,
    "probabilistic-metric-4-printed": printed_standard_deviation_bound,
    "one-run-lemma-1": laplace_trade_off,
    "one-run-lemma-2": optimal_decoder,
    "one-run-algorithm-2": conversion,
    "one-run-theorem-2": order_statistics,
    "one-run-theorem-3": independent_channels,
    "one-run-proposition-1": tail_bound,
    "game-theorem-3.4": zero_grounding,
    "game-theorem-3.6": certified_removal,
    "game-theorem-3.6-budgets": vacuous_budgets,
    "game-appendix-a3": chosen_sensitivity,
    "game-proposition-3.9": two_random_splits,
    "epsilon-star-theorem-1": rejection_regions,
    "epsilon-star-appendix-a1": model_bound,
    "epsilon-star-theorem-2": mechanism_bound,
    "epsilon-star-theorem-4": private_mean,
}
