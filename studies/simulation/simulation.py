"""The simulation of Negoescu et al. (2024), appendix B: losses drawn from known distributions with a known Epsilon*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, log_ndtr

from lethe.errors import BadValue
from lethe.statistics.epsilon_star.lower import split_lower_bound
from lethe.statistics.epsilon_star.parametric import fit_mixture, parametric_epsilon_star
from lethe.statistics.epsilon_star.ratios import (
    EpsilonStar,
    LowerBound,
    checked_cut,
    counts,
    empirical_epsilon_star,
    largest,
    log_ratios,
    shares,
)
from lethe.statistics.two_sample import ks_test

SHAPE, SCALE = 2.0, 5.0  # training losses are Gamma(2, 5), those of the population Gamma(2 + gap, 5)
EMPIRICAL_CUT = 1e-3  # the paper's cut for empirical values; the paper cuts parametric values at delta
THRESHOLDS_PER_TAIL = 20_000  # thresholds per tail in the search for the true supremum
LEAST_RATE = 1e-9  # Fig. 3 omits rates below this
MOST_FITTED = 4_000  # losses per mixture fit for Fig. 6

# The paper shows the first two. The next two are the same without a cut; the last is a bound with a guarantee.
ESTIMATES = ("empirical, cut .001", "parametric, cut delta", "empirical", "parametric", "split lower bound")


@dataclass(frozen=True)
class Simulated:
    """Estimates from ``runs`` draws of ``n`` losses per side, and the true value.

    ``values`` maps each of `ESTIMATES` to an array (runs,). ``truth_cut`` is the true value over the thresholds whose true
    rates lie in [delta, 1 - delta].
    """

    gap: float
    n: int
    delta: float
    truth: float
    truth_cut: float
    values: dict[str, np.ndarray]

    def mean(self, estimate: str) -> float:
        """Mean over the runs."""
        return float(self.values[estimate].mean())

    def sd(self, estimate: str) -> float:
        """Standard deviation over the runs (divisor runs - 1; NaN for one run)."""
        values = self.values[estimate]
        return float(values.std(ddof=1)) if len(values) > 1 and np.isfinite(values).all() else float("nan")


def simulate(gap: float, n: int, delta: float, runs: int, seed: int = 0) -> Simulated:
    """Draw pairs of samples and compute all `ESTIMATES` on each pair."""
    if runs < 1:
        raise BadValue("runs", runs, "at least 1")
    truth, truth_cut = gamma_epsilon_star(gap, delta), gamma_epsilon_star(gap, delta, cut=delta)
    values: dict[str, list[float]] = {name: [] for name in ESTIMATES}
    for run in range(runs):
        rng = np.random.default_rng([seed, round(gap * 1000), n, run])
        train, population = rng.gamma(SHAPE, SCALE, n), rng.gamma(SHAPE + gap, SCALE, n)
        found: tuple[EpsilonStar | LowerBound, ...] = (
            empirical_epsilon_star(train, population, delta, EMPIRICAL_CUT),
            parametric_epsilon_star(train, population, delta, delta),
            empirical_epsilon_star(train, population, delta),
            parametric_epsilon_star(train, population, delta),
            split_lower_bound(train, population, delta, seed=run),
        )
        for name, result in zip(ESTIMATES, found, strict=True):
            values[name].append(result.value)
    columns = {name: np.array(column) for name, column in values.items()}
    return Simulated(gap, n, delta, truth, truth_cut, columns)


def gamma_epsilon_star(gap: float, delta: float, cut: float | None = None) -> float:
    """Epsilon* of Gamma(2, 5) against Gamma(2 + gap, 5), to about six digits, from both exact tails.

    The thresholds are quantiles of both distributions, evenly spaced in the logarithm of both tails.
    """
    if not 0 < delta < 1:
        raise BadValue(
            "delta", delta, "a number in (0, 1)", "At delta = 0, Epsilon* is infinite for any gap but 0."
        )
    cut = checked_cut(cut)
    shapes = (SHAPE, SHAPE + gap)
    tails = np.geomspace(delta / 10, 0.5, THRESHOLDS_PER_TAIL)
    x = np.concatenate([inverse(shape, tails) for shape in shapes for inverse in (gammaincinv, gammainccinv)])
    if cut is not None:
        low = max(gammaincinv(shape, cut) for shape in shapes)
        high = min(gammainccinv(shape, cut) for shape in shapes)
        x = np.concatenate([[low, high], x[(x > low) & (x < high)]]) if low <= high else np.empty(0)
    if not x.size:
        return float("nan")
    train, population = ((gammainc(shape, x), gammaincc(shape, x)) for shape in shapes)
    return largest(log_ratios(train, population, delta))[0]


@dataclass(frozen=True)
class Curves:
    """Fig. 3: ``x`` is (TPR + FPR) / 2 and ``ratios`` (2, k) are (TPR - delta) / FPR and (TNR - delta) / FNR."""

    x: np.ndarray
    ratios: np.ndarray


def ratio_curves(delta: float, mean: float = 3.0, n: int = 100_000, seed: int = 0) -> tuple[Curves, Curves]:
    """The first two ratios of two normal laws over all thresholds: the true curves, and those of samples."""
    q = np.linspace(-8, mean + 8, 4001)
    rng = np.random.default_rng(seed)
    _, below_train, below_population = counts(rng.normal(size=n), rng.normal(mean, size=n))
    train, population = ((np.exp(log_ndtr(q - m)), np.exp(log_ndtr(m - q))) for m in (0.0, mean))
    return _curves(train, population, delta), _curves(shares(below_train, n), shares(below_population, n), delta)


def _curves(train: tuple, population: tuple, delta: float) -> Curves:
    (tpr, fnr), (fpr, _) = train, population
    kept = (fpr >= LEAST_RATE) & (fnr >= LEAST_RATE)
    logs = log_ratios(train, population, delta)[:2, kept]
    return Curves((tpr[kept] + fpr[kept]) / 2, np.exp(logs))


def fit_p_values(
    values: np.ndarray,
    components: Sequence[int],
    sizes: Sequence[int],
    seed: int = 0,
    fitted: int = MOST_FITTED,
) -> np.ndarray:
    """Fig. 6: (components, sizes) p-values of the two-sample KS test of fit.

    For each size, that many of the values set aside are compared with as many fresh draws from the mixture.
    """
    rng = np.random.default_rng(seed)
    mixed, aside = rng.permutation(np.asarray(values, float)), max(sizes)
    if len(mixed) - aside < max(components):
        raise BadValue("losses", len(mixed), f"at least {aside + max(components)}: {aside} are set aside")
    mixtures = [fit_mixture(mixed[aside : aside + fitted], count) for count in components]
    return np.array(
        [[ks_test(mixed[:size], mixture.sample(size, rng)).p_value for size in sizes] for mixture in mixtures]
    )
