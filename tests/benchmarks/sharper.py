"""The sharper bounds beside those that they replace, in one run: ``python -m tests.benchmarks sharper``.

Widths are medians over runs; a gain above 1 is a narrower bound. The former bounds are written out here.
"""

import math
import sys
from collections.abc import Iterator

import numpy as np

from lethe.statistics import betting
from lethe.statistics.bounds import binary_upper
from lethe.statistics.counts import at_least_once, pooled_bounds, rate_bounds
from lethe.statistics.leak_rates import Rate, share_exceeding
from lethe.statistics.planning import samples_to_certify

ALPHA, RUNS = 0.01, 40
Gain = tuple[str, float, float]


def one_capital(values: np.ndarray, alpha: float) -> np.ndarray:
    """The mean's upper bound by one capital with steady stakes and largest stake 1/2."""
    counts = np.arange(2, values.shape[1] + 2)
    means = (0.5 + np.cumsum(values, axis=1)) / counts
    variances = (0.25 + np.cumsum(np.square(values - means), axis=1)) / counts
    before = np.concatenate([np.full((len(values), 1), 0.25), variances[:, :-1]], axis=1)
    stakes = np.sqrt(2 * math.log(1 / alpha) / (values.shape[1] * before))
    low, high = np.zeros(len(values)), np.ones(len(values))
    for _ in range(40):
        mean = (low + high)[:, None] / 2
        best = np.cumsum(np.log1p(np.minimum(stakes, 0.5 / (1 - mean)) * (mean - values)), axis=1).max(axis=1)
        refuted = best >= math.log(1 / alpha)
        low, high = np.where(refuted, low, mean[:, 0]), np.where(refuted, mean[:, 0], high)
    return high


def means(rng: np.random.Generator) -> Iterator[Gain]:
    laws = {
        "no leak": lambda size: np.zeros(size),
        "ROUGE-like": lambda size: rng.beta(2, 3, size) * (rng.random(size) < 0.5),
        "beta(2, 5)": lambda size: rng.beta(2, 5, size),
        "coin of 1/2": lambda size: (rng.random(size) < 0.5) * 1.0,
        "coin of 1/50": lambda size: (rng.random(size) < 0.02) * 1.0,
    }
    true = (0, 0.2, 2 / 7, 0.5, 0.02)
    for n in (32, 128, 1024):
        for (name, law), mean in zip(laws.items(), true, strict=True):
            values = law((RUNS, n))
            old, new = one_capital(values, ALPHA), betting.mean_upper(values, ALPHA)
            yield f"betting, {name}, n {n}", float(np.median(old)) - mean, float(np.median(new)) - mean


def two_bounds(leaks: np.ndarray, n: int, alpha: float, ks: np.ndarray) -> np.ndarray:
    """The width of the mean of leak@k by the questions' own bounds and the pooled rate, alpha / 2 each."""
    low, high = rate_bounds(leaks, np.full(len(leaks), n), alpha / 2 / len(leaks))
    pooled = pooled_bounds(leaks, np.full(len(leaks), n), alpha / 2)
    lower = np.maximum(at_least_once(low, ks).mean(axis=0), pooled[0])
    return np.minimum(at_least_once(high, ks).mean(axis=0), at_least_once(pooled[1], ks)[0]) - lower


def leaks_at_k(rng: np.random.Generator) -> Iterator[Gain]:
    m, n, ks = 40, 1024, np.array([1, 5, 20, 100, 200, 1000])
    cases = {
        "no leak": np.zeros(m),
        "all .01": np.full(m, 0.01),
        "half .05": np.r_[np.zeros(20), np.full(20, 0.05)],
        "one of 40 at .5": np.r_[np.zeros(39), 0.5],
    }
    for name, rates in cases.items():
        widths = []
        for _ in range(RUNS):
            leaks = rng.binomial(n, rates)
            band = Rate.of(leaks, n).mean(ALPHA, ks.tolist())
            widths.append((two_bounds(leaks, n, ALPHA, ks), band.upper - band.lower))
        old, new = np.median(widths, axis=0)
        yield from ((f"mean leak@{k}, {name}", a, b) for k, a, b in zip(ks, old, new, strict=True))


def shares(rng: np.random.Generator) -> Iterator[Gain]:
    prompts, answers, tau = 64, 32, 0.15
    for name, law in {"no leak": 0.0, "all .02": 0.02, "all .05": 0.05, "a tenth .5": None}.items():
        pairs = []
        for _ in range(RUNS):
            rates = np.full(prompts, law) if law is not None else np.where(rng.random(prompts) < 0.1, 0.5, 0.0)
            leaks = rng.binomial(answers, rates)
            left = int((binary_upper(leaks, answers, ALPHA) > tau).sum())
            old = min(1.0, float(binary_upper(left, prompts, ALPHA)) / (1 - ALPHA))
            pairs.append((old, share_exceeding(Rate.of(leaks, answers), tau, ALPHA, "upper").value))
        yield (f"language share, {name}", *np.median(pairs, axis=0).tolist())


def plans() -> Iterator[Gain]:
    for tau, prompts in ((0.01, 40), (0.05, 400)):
        yield (
            f"draws to certify {prompts} prompts at {tau:g}",
            samples_to_certify(tau, ALPHA / prompts),
            samples_to_certify(tau, ALPHA),
        )


def main() -> int:
    rng = np.random.default_rng(16)
    print(f"{'alpha ' + str(ALPHA):48} {'former':>9} {'now':>9} {'gain':>6}")
    for name, old, new in (*means(rng), *leaks_at_k(rng), *shares(rng), *plans()):
        print(f"{name:48} {old:9.4g} {new:9.4g} {old / new:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
