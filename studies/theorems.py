"""What the papers prove, checked by numbers: exact sums where the laws are known, simulations where they are not.

A check is a function without arguments that returns plain values; `CHECKS` names them. No check draws
a random number that its seed does not decide. Where a statement says *at most*, the value is the worst
case that the check could make, never an average.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from studies.outcome import share as share_of

SEED = 0
ALPHA = 0.01  # of the probabilistic paper
SIZES = (16, 128, 1024)  # draws per prompt
RUNS = 4_000
NULL_RUNS = 10_000  # runs of a true null: 5% is then known to .5%
MU = 1.0
DELTA = 1e-5
Values = dict[str, Json]


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
    misses = []
    for n in SIZES:
        half_width = dkw(n, ALPHA)
        misses.append(float(stats.ksone.sf(half_width, n)))
    return {"alpha": ALPHA, "misses": max(misses)}


def two_sided_band() -> Values:
    """The band of both sides: the exact probability that it misses at some x, for a continuous law."""
    misses = []
    for n in SIZES:
        half_width = dkw(n, ALPHA, sides=2)
        misses.append(float(stats.kstwo.sf(half_width, n)))
    return {"alpha": ALPHA, "misses": max(misses)}


@dataclass(frozen=True)
class Law:
    """A law of scores on [0, 1] whose mean and standard deviation are known.

    ``draw(rng, shape)`` gives an array of that shape.
    """

    draw: Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
    mean: float
    sd: float


def _coin(p: float) -> Law:
    """A score that is 1 with probability ``p``, else 0."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        return rng.binomial(1, p, shape).astype(float)

    return Law(draw, mean=p, sd=math.sqrt(p * (1 - p)))


FAIR_COIN = _coin(0.5)
LAWS = (
    FAIR_COIN,
    _coin(0.01),
    Law(
        draw=lambda rng, shape: rng.random(shape),
        mean=0.5,
        sd=math.sqrt(1 / 12),
    ),
    Law(
        draw=lambda rng, shape: rng.beta(2, 5, shape),
        mean=2 / 7,
        sd=math.sqrt(10 / (49 * 8)),
    ),
)


def moment_bounds() -> Values:
    """Propositions 3 and 4 in Lethe's form: the share of runs in which M_mu or M_sigma misses, at its worst."""
    mean_misses = 0
    sd_misses = 0
    for law in LAWS:
        for n in SIZES:
            scores = law.draw(np.random.default_rng([SEED, n]), (RUNS, n))
            bounds = paper_bounds(scores, ALPHA, np.array([0.5]))

            # A law may lie exactly at its bound: a rounded bound is no miss.
            below = np.count_nonzero(bounds.m_mu < law.mean - 1e-9)
            above = np.count_nonzero(bounds.m_mu_lower > law.mean + 1e-9)
            narrow = np.count_nonzero(bounds.m_sigma < law.sd - 1e-9)

            mean_misses = max(mean_misses, int(below + above))
            sd_misses = max(sd_misses, int(narrow))
    return {
        "alpha": ALPHA,
        "runs": RUNS,
        "M_mu, either end": share_of(mean_misses, RUNS),
        "M_sigma": share_of(sd_misses, RUNS),
    }


def printed_standard_deviation_bound() -> Values:
    """Metric 4 and Proposition 4 as printed, with the term -eta_0 F(tau_0), on fair coins."""
    n = 1024
    grid = np.linspace(0, 1, 101)
    variance = FAIR_COIN.sd**2
    coins = FAIR_COIN.draw(np.random.default_rng(SEED), (RUNS, n))

    misses = 0
    for row in np.sort(coins, axis=1):
        misses += _printed_variance(row, grid) < variance
    return {"alpha": ALPHA, "runs": RUNS, "misses": share_of(misses, RUNS)}


def _printed_variance(ordered: np.ndarray, grid: np.ndarray) -> float:
    """The square of the printed M_sigma of scores (n,), in ascending order, over the thresholds ``grid`` (K,).

    The band of Dvoretzky, Kiefer and Wolfowitz bounds the mean from both sides. eta_i is the
    farthest square distance from such a mean in the cell between tau_i and tau_(i + 1).
    """
    half_width = dkw(len(ordered), ALPHA, sides=2)
    cdf = np.searchsorted(ordered, grid, side="right") / len(ordered)
    upper_band = np.minimum(cdf + half_width, 1)
    lower_band = np.maximum(cdf - half_width, 0)

    widths = np.diff(grid)
    least_mean = 1 - widths @ upper_band[1:]
    greatest_mean = 1 - widths @ lower_band[:-1]

    from_least = np.square(grid - least_mean)
    from_greatest = np.square(grid - greatest_mean)
    farthest = np.maximum(from_least, from_greatest)
    eta = np.maximum(farthest[:-1], farthest[1:])

    # A sum by parts: eta_i - eta_(i + 1) weighs the distribution at tau_(i + 1), at its worst within the band.
    steps = eta[:-1] - eta[1:]
    banded = np.where(steps > 0, upper_band[1:-1], lower_band[1:-1])
    return float(eta[-1] - eta[0] * lower_band[0] + steps @ banded)


def laplace_trade_off() -> Values:
    """Lemma 1: the printed trade-off function of two Laplace laws beside that of their likelihood ratio test.

    ``x`` is the type I error, the trade-off the least type II error at it. Lemma 1 has a formula for each of
    three parts of x.
    """
    x = np.linspace(1e-4, 1 - 1e-4, 2001)
    law = stats.laplace()
    tested = law.cdf(law.isf(x) - MU)

    low = 1 - math.exp(MU) * x
    middle = math.exp(-MU) / (4 * x)
    high = math.exp(-MU) * (1 - x)
    edge = math.exp(-MU) / 2
    printed = np.select([x < edge, x <= 0.5], [low, middle], high)

    difference = np.abs(tested - printed).max()
    return {"mu": MU, "largest difference": float(difference)}


def optimal_decoder() -> Values:
    """Lemma 2: errors of the threshold mu / 2 on a Gaussian bit, beside the formula and other thresholds."""
    n = 1_000_000
    rng = np.random.default_rng(SEED)
    bits = rng.integers(0, 2, n)
    outputs = bits * MU + rng.standard_normal(n)
    wrong = (outputs > MU / 2) != bits

    other_thresholds = np.concatenate([np.linspace(-3, 0.3, 20), np.linspace(0.7, 4, 20)])
    false_positives = ndtr(-other_thresholds)
    false_negatives = ndtr(other_thresholds - MU)
    other_errors = (false_positives + false_negatives) / 2

    return {
        "errors": share_of(int(np.count_nonzero(wrong)), n),
        "formula": float(ndtr(-MU / 2)),
        "best other": float(other_errors.min()),
    }


def conversion() -> Values:
    """Algorithm 2: epsilon of a Gaussian trade-off function on a grid, beside the closed form.

    epsilon(delta) is the largest ln((1 - delta - f(x)) / x) over the type I errors x.
    """
    x = np.geomspace(1e-12, 1, 400_001)[:-1]
    trade_off = ndtr(ndtri(1 - x) - MU)
    left = 1 - DELTA - trade_off
    is_positive = left > 0
    log_ratio = np.log(left[is_positive] / x[is_positive])
    return {
        "delta": DELTA,
        "algorithm": float(log_ratio.max()),
        "closed form": gaussian().channel(MU).epsilon(DELTA),
    }


def order_statistics() -> Values:
    """Theorem 2: simulated order statistics of uniforms against the printed density, by Kolmogorov-Smirnov.

    The kth smallest of n uniforms has the law Beta(k, n - k + 1). The least p-value is multiplied by the
    number of tests (Bonferroni).
    """
    rng = np.random.default_rng(SEED)
    p_values = []
    for n in (5, 50, 500):
        for k in (1, n // 2, n):
            uniforms = np.sort(rng.random((RUNS, n)), axis=1)
            printed = stats.beta(k, n - k + 1)
            p_values.append(stats.kstest(uniforms[:, k - 1], printed.cdf).pvalue)

    corrected = min(p_values) * len(p_values)
    return {"cases": len(p_values), "smallest p times cases": min(1.0, corrected)}


def independent_channels() -> Values:
    """Theorem 3 and Proposition 1 where each bit has a channel of its own: a true null rejected at 5%."""
    gaussian_bits = partial(simulated.gaussian, mu=MU)
    laplace_bits = partial(simulated.laplace, mu=MU)
    cases = {
        "Gaussian": Counterexample(
            simulate=gaussian_bits,
            null=gaussian().channel(MU),
            n=1000,
            r=200,
            delta=DELTA,
        ),
        "Laplace": Counterexample(
            simulate=laplace_bits,
            null=laplace().channel(MU),
            n=1000,
            r=200,
            delta=DELTA,
        ),
        "a bit is revealed with probability .005": simulated.COUNTEREXAMPLES["(0, delta) family"],
    }

    values: Values = {"runs": NULL_RUNS, "nominal": 0.05}
    for name, case in cases.items():
        rejected = {}
        for method, share in simulated.false_rejections(case, NULL_RUNS, 0.05).items():
            rejected[method] = share_of(round(share * NULL_RUNS), NULL_RUNS)
        values[name] = rejected
    return values


def tail_bound() -> Values:
    """Proposition 1: the printed exponential bound over the exact tail of independent errors, and Hoeffding's over it.

    ``mass`` (errors + 1,) is the exact law of their number, by one convolution for each bit; the tail at
    u is the probability of at most u errors.
    """
    n = 200
    r = 100
    rates, weights = rank_error_rates(gaussian().channel(MU), n, r)
    rates = np.repeat(rates, np.round(weights).astype(int))
    expected = rates.sum()

    mass = np.ones(1)
    for rate in rates:
        mass = np.convolve(mass, [1 - rate, rate])
    tails = np.cumsum(mass)

    of_printed = []
    of_hoeffding = []
    for u in range(math.ceil(expected)):
        printed = math.exp(chernoff_bound(u, rates, np.ones(rates.size)))
        hoeffding = 2 * math.exp(-2 * (expected - u) ** 2 / r)
        of_printed.append(tails[u] / printed)
        of_hoeffding.append(printed / hoeffding)
    return {
        "tail over bound": round(float(max(of_printed)), 10),
        "bound over Hoeffding": max(of_hoeffding),
    }


ADVERSARIES = 200
POINTS = 6  # a data set so small that all splits can be summed


def zero_grounding() -> Values:
    """Theorem 3.4: the advantage of random adversaries against Retrain, summed over all splits of six points."""
    return _random_adversaries(chosen_weights=False)


def chosen_sensitivity() -> Values:
    """Theorem 3.4 under chosen sensitivity distributions: the same sums, where the oracle shows some points more often."""
    return _random_adversaries(chosen_weights=True)


def _random_adversaries(*, chosen_weights: bool) -> Values:
    """The largest absolute advantage of `ADVERSARIES` that answer at random; 0 is what the theorem proves.

    The model is any function of the retain set, the adversary any function of model and point: an
    adversary is a table (retain sets, points) of the probability that it accepts.
    """
    rng = np.random.default_rng(SEED)
    largest_advantage = 0.0
    for _ in range(ADVERSARIES):
        accepts = rng.random((2**POINTS, POINTS))
        weights = np.ones(POINTS)
        if chosen_weights:
            weights = rng.dirichlet(np.full(POINTS, 0.3))  # a few points have most of the weight
        advantage = np.mean(_advantages(accepts, weights))
        largest_advantage = max(largest_advantage, abs(float(advantage)))
    return {"adversaries": ADVERSARIES, "largest advantage": round(largest_advantage, 10)}


def _advantages(accepts: np.ndarray, weights: np.ndarray) -> list[float]:
    """The signed advantage in each of the 90 splits; ``weights`` (POINTS,) are the sensitivities of the points."""
    signed = []
    for forget in itertools.combinations(range(POINTS), 2):
        others = set(range(POINTS)).difference(forget)
        for test in itertools.combinations(sorted(others), 2):
            retained = others.difference(test)
            model = sum(2**point for point in retained)
            accepted = accepts[model]

            forget_rows = list(forget)
            test_rows = list(test)
            advantage = signed_advantage(
                accepted[forget_rows],
                accepted[test_rows],
                weights[forget_rows],
                weights[test_rows],
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
            raised = math.exp(epsilon) / 2 + delta
            other_lowered = (0.5 - delta) / math.exp(epsilon)
            tilted = min(raised, 1 - other_lowered)
            advantage = 2 * tilted - 1
            ratios.append(advantage / certified_bound(epsilon, delta).paper)
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

    The adversary never looks at the model: it asks the oracle until it gets a point of the table, at
    most 400 times. If the table is empty, it answers 0.
    """
    forgotten = set().union(*(split.forget.tolist() for split in splits))
    tested = set().union(*(split.test.tolist() for split in splits))
    only_forgotten = list(forgotten - tested)
    only_tested = list(tested - forgotten)
    has_table = bool(only_forgotten and only_tested)

    signed = []
    for split in splits:
        accepted = []
        for shown in (split.forget, split.test):
            points = rng.choice(shown, (RUNS, 400))
            answers = np.isin(points, only_forgotten)
            known = answers | np.isin(points, only_tested)
            first_known = known.argmax(axis=1)
            answer = answers[np.arange(RUNS), first_known]
            accepted.append(answer & has_table)
        signed.append(np.array([signed_advantage(*accepted)]))
    original, swapped = signed
    return swap_advantage(original, swapped).value


def rejection_regions() -> Values:
    """Theorem 1 of the Epsilon* paper: every rejection region of randomised response that is (epsilon, delta)-DP.

    The response has four outcomes. ``p`` (4,) is their law on one training set, and in reverse that on
    the other; a region is a subset of the outcomes.
    """
    slack = math.inf
    for epsilon, delta in itertools.product((0.1, 1.0, 3.0), (0.0, 1e-3, 0.1)):
        likely = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
        p = np.array([delta, likely, 1 - delta - likely, 0])

        for bits in itertools.product((0, 1), repeat=4):
            region = np.array(bits)
            false_positive = float(p @ region)
            false_negative = float(p[::-1] @ (1 - region))
            for a, b in itertools.permutations((false_positive, false_negative)):
                weighted_errors = a + math.exp(epsilon) * b
                slack = min(slack, weighted_errors - (1 - delta))
    return {"smallest slack": round(slack, 10)}


def model_bound() -> Values:
    """Appendix A.1: Epsilon* over a few thresholds beside the least epsilon of Definition 1, over all of them."""
    rng = np.random.default_rng(SEED)
    excess = -math.inf
    for _ in range(200):
        train = rng.gamma(2, 5, 200)
        population = rng.gamma(2.5, 5, 200)
        least = empirical_epsilon_star(train, population, 0.01).value

        thresholds = np.quantile(population, rng.random(20))
        fpr = (population[:, None] <= thresholds).mean(axis=0)
        tpr = (train[:, None] <= thresholds).mean(axis=0)
        fnr = 1 - tpr
        tnr = 1 - fpr

        ratios = [
            _ratio(tpr, fpr),
            _ratio(tnr, fnr),
            _ratio(fnr, tnr),
            _ratio(fpr, tpr),
        ]
        epsilon = math.log(max(np.max(ratios), 1.0))
        excess = max(excess, epsilon - least)
    return {"draws": 200, "largest excess": round(excess, 10)}


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """(top - delta) / bottom at delta = 0.01, of rates (thresholds,); 0 where it would be negative or have no bottom."""
    above = np.maximum(top - 0.01, 0)
    return np.divide(above, bottom, out=np.zeros_like(above), where=bottom > 0)


def mechanism_bound() -> Values:
    """Theorem 2 of the Epsilon* paper: eps-bar minus ln E[e^(Epsilon*)], at its largest over random mechanisms.

    The population's losses are N(0, 1), a model's training losses N(-shift, scale): all rates are exact.
    A mechanism is eight models, each with probability 1/8; its rates are their means.
    """
    rng = np.random.default_rng(SEED)
    fpr = np.linspace(0.01, 0.99, 99)
    excess = []
    for _ in range(500):
        shifts = rng.normal(0.5, rng.uniform(0, 2), (8, 1))
        scales = rng.uniform(0.5, 2, (8, 1))
        fnr = ndtr(-(ndtri(fpr) + shifts) / scales)  # (models, thresholds)

        of_models = [_epsilon(1 - fnr_of_model, fpr) for fnr_of_model in fnr]
        of_mechanism = _epsilon(1 - fnr.mean(axis=0), fpr)
        excess.append(of_mechanism - math.log(np.mean(np.exp(of_models))))
    return {"mechanisms": len(excess), "largest excess": round(max(excess), 10)}


def _epsilon(tpr: np.ndarray, fpr: np.ndarray, delta: float = 0.01) -> float:
    """The least epsilon that rates (thresholds,) of training set and population allow at ``delta``."""
    logs = log_ratios((tpr, 1 - tpr), (fpr, 1 - fpr), delta)
    return largest(logs)[0]


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
    """The smallest eps-bar of Equations 14 and 15 over 1,000 thresholds of the loss.

    ``law`` is that of the noise on the mean of ``n`` records. With k ones the share k / n of the training
    set has the loss of a one, and of the population one half.
    """
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
    return _epsilon(train[kept], population[kept], delta)


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
