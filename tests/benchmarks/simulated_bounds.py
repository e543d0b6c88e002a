"""The bounds among the simulations of `tests.benchmarks.simulations`."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
from scipy.stats import binom, poisson

from lethe.statistics import betting, many_prompts
from lethe.statistics.answer_tree import Masses, Remainder, leak_interval, together_below
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.bounds import binary_lower, binary_upper, paper_bounds
from lethe.statistics.counts import (
    at_least_once,
    labelled_average,
    pooled_bounds,
    random_labels,
    rate_bounds,
)
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate
from lethe.statistics.many_prompts import binary_p_value, holm
from lethe.statistics.sequential import anytime_upper
from lethe.statistics.two_sample import auc_interval
from lethe.verdict.claims import _both, mean_leak_interval

Rng = np.random.Generator
Figure = Callable[[Rng], str]
SIMULATIONS: dict[str, tuple[str, str, Figure]] = {}  # name: statement, figure before, figure now
LEVELS = (0.01, 0.05, 0.1, 0.25)


def simulation(name: str, before: str, statement: str = "") -> Callable[[Figure], Figure]:
    """Add a simulation; its statement is the first line of its docstring unless given."""

    def added(now: Figure) -> Figure:
        SIMULATIONS[name] = (
            statement or (now.__doc__ or "").partition("\n")[0].rstrip("."),
            before,
            now,
        )
        return now

    return added


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
        best = np.cumsum(
            np.log1p(np.minimum(stakes, 0.5 / (1 - mean)) * (mean - values)), axis=1
        ).max(axis=1)
        refuted = best >= math.log(1 / alpha)
        low, high = np.where(refuted, low, mean[:, 0]), np.where(refuted, mean[:, 0], high)
    return high


def two_bounds(leaks: np.ndarray, n: int, alpha: float, ks: np.ndarray) -> np.ndarray:
    """The width of the mean of leak@k by the questions' own bounds and the pooled rate, alpha / 2 each."""
    low, high = rate_bounds(leaks, np.full(len(leaks), n), alpha / 2 / len(leaks))
    pooled = pooled_bounds(leaks, np.full(len(leaks), n), alpha / 2)
    lower = np.maximum(at_least_once(low, ks).mean(axis=0), pooled[0])
    return np.minimum(at_least_once(high, ks).mean(axis=0), at_least_once(pooled[1], ks)[0]) - lower


@simulation("s01", "1.150 alpha")
def pooled_at_one(rng: Rng) -> str:
    """Pooled count of 1: miss."""
    largest = 0.0
    for alpha in LEVELS:
        for m, n in ((30, 1024), (400, 1), (40, 1), (4, 1), (10, 2), (40, 4)):
            low = float(pooled_bounds([1] + [0] * (m - 1), [n] * m, alpha)[0][0])
            high = float(pooled_bounds([n - 1] + [n] * (m - 1), [n] * m, alpha)[1][0])
            for end in (low, 1 - high):
                largest = max(
                    largest,
                    -math.expm1(n * math.log1p(-min(1 - 1e-15, end * m * (1 - 1e-9)))) / alpha,
                )
    return f"{largest:.3f} alpha"


@simulation("s01b", "1.145 alpha")
def pooled_extremes(rng: Rng) -> str:
    """Other pooled counts."""
    largest = 0.0
    for m in (2, 5, 10, 25):
        for alpha in LEVELS:
            lows = np.array(
                [pooled_bounds([1] * k + [0] * (m - k), [1] * m, alpha)[0][0] for k in range(m + 1)]
            )
            for ones in range(m):
                for some in range(1, m - ones + 1):
                    p = (lows[1:] * m - ones) / some * (1 - 1e-12)
                    for jump in p[(p > 0) & (p < 1)]:
                        chances = binom.pmf(np.arange(m + 1) - ones, some, jump)
                        largest = max(
                            largest, chances[lows > (ones + some * jump) / m].sum() / alpha
                        )
    return f"{largest:.3f} alpha"


def laws_of(rng: Rng) -> dict[str, tuple[Callable[[tuple[int, int]], np.ndarray], float]]:
    return {
        "zeros": (np.zeros, 0.0),
        "ROUGE-like": (lambda shape: rng.beta(2, 3, shape) * (rng.random(shape) < 0.5), 0.2),
        "coin .5": (lambda shape: (rng.random(shape) < 0.5).astype(float), 0.5),
        "coin .02": (lambda shape: (rng.random(shape) < 0.02).astype(float), 0.02),
    }


def bets(n: int, other: Callable[[np.ndarray, float], np.ndarray]) -> Figure:
    def now(rng: Rng) -> str:
        gains = []
        for name, (law, mean) in laws_of(rng).items():
            values = law((20, n))
            old, new = (
                np.median(bound(values, 0.01)) - mean for bound in (other, betting.mean_upper)
            )
            gains.append(f"{name} {old / new:.2f}")
        return ", ".join(gains)

    return now


def anytime(values: np.ndarray, alpha: float) -> np.ndarray:
    return np.array([anytime_upper(row, alpha) for row in values])


simulation("s09", "1", "Betting, n 1,024: former width / width")(bets(1024, one_capital))
simulation("s09b", "0.63 to 1.2", "Betting, n 128: anytime width / width")(bets(128, anytime))


@simulation("s09c", "below alpha")
def betting_level(rng: Rng) -> str:
    """Betting: misses of coins."""
    worst = []
    for alpha in (0.01, 0.05):
        tosses = [(rng.random((3000, 64)) < p, p) for p in (0.1, 0.5, 0.9)]
        worst.append(
            max(np.mean(betting.mean_upper(draws.astype(float), alpha) < p) for draws, p in tosses)
        )
    return "{:.2%} at .01, {:.2%} at .05".format(*worst)


@simulation("s11, s11b", "at most 1%; 1")
def mean_leaks(rng: Rng) -> str:
    """Leak@k: misses, 1%; former width / width."""
    ks = np.array([1, 5, 20, 100, 200, 1000])
    missed = []
    gains = []
    for name, p in {
        "none leaks": np.zeros(40),
        "all .0005": np.full(40, 0.0005),
        "all .01": np.full(40, 0.01),
        "half .05": np.r_[np.zeros(20), np.full(20, 0.05)],
        "one .5": np.r_[np.zeros(39), 0.5],
        "spread": np.exp(rng.normal(-8, 2.5, 40)).clip(0, 0.9),
    }.items():
        truth = at_least_once(p, ks).mean(axis=0)
        widths = []
        for _ in range(400):
            leaks = rng.binomial(1024, p)
            band = Rate.of(leaks, 1024).mean(0.01, ks.tolist())
            missed.append(((band.lower > truth + 1e-12).any(), (band.upper < truth - 1e-12).any()))
            widths.append((two_bounds(leaks, 1024, 0.01, ks)[3], band.upper[3] - band.lower[3]))
        gains.append(f"{name} {np.divide(*np.median(widths, axis=0)):.2f}")
    sides = np.array(missed).reshape(-1, 400, 2).mean(axis=1)
    return f"{sides.max():.1%}; {', '.join(gains)}"


@simulation("s12", "2.8%, 3.5%")
def trees(rng: Rng) -> str:
    """Answer trees with samples: misses, 5%."""
    missed = []
    for m, n, rho, leak, clean, rest in (
        (10, 256, 300, 0.05, 0.85, 0.004),
        (10, 256, 300, 0.0, 0.5, 0.002),
        (3, 64, 50, 0.0, 0.0, 0.02),
    ):
        masses = Masses((leak,), (clean,))
        p = leak + rest
        wrong = 0
        for _ in range(4000):
            hits = rng.poisson(rho * rest, m)
            others = rng.poisson(rho * max(0, 1 - leak - clean - rest), m)
            known = [
                (masses, Remainder(rho, int(a + b), int(a)))
                for a, b in zip(hits, others, strict=True)
            ]
            exact = mean_leak_interval(known, [leak] * m, 0.025)
            found = _both(
                many_prompts.share_interval(list((rng.random((m, n)) < p).astype(float)), 0.025),
                exact,
                0.05,
            )
            wrong += not found.lower <= p <= found.upper
        counts = np.arange(poisson.isf(1e-9, rho * rest) + 1)
        ends = [leak_interval(masses, Remainder(rho, int(k), int(k)), 0.05).upper for k in counts]
        missed.append((wrong / 4000, poisson.pmf(counts, rho * rest)[np.array(ends) < p].sum()))
    return "{:.1%}, {:.1%}".format(*np.max(missed, axis=0))


@simulation("s13", "1.000000")
def extremes(rng: Rng) -> str:
    """Clopper-Pearson's tail / alpha."""
    import mpmath

    mpmath.mp.dps = 40
    largest = 0.0
    for n in (1, 2, 5, 100, 1024, 10**5):
        for alpha in (0.5, 0.25, 0.05, 0.01, 1e-5, 1e-8, 1e-12, 1e-100):
            for hits in sorted({0, 1, n // 100, n // 2, n - 1} - {n}):
                end, low = (
                    float(binary_upper(hits, n, alpha)),
                    float(binary_lower(n - hits, n, alpha)),
                )
                assert low >= (1 - end) * (1 - 1e-9) - 1e-16
                if end < 1 - 1e-8:  # nearer to 1 float64 has too few digits
                    p = mpmath.mpf(end)
                    tail = term = mpmath.binomial(n, hits) * p**hits * (1 - p) ** (n - hits)
                    for k in range(hits, 0, -1):
                        term *= mpmath.mpf(k) / (n - k + 1) * (1 - p) / p
                        tail += term
                        if term < tail * mpmath.mpf(10) ** -30:
                            break
                    largest = max(largest, float(tail / mpmath.mpf(alpha)))
    return f"{largest:.6f}"


@simulation("s13b", "0")
def digits(rng: Rng) -> str:
    """Digits rounded inward."""
    wrong = 0
    small = 10 ** rng.uniform(-15, 0, 4000)
    for value in np.concatenate([rng.random(2000), small[:2000], 1 - small[2000:]]):
        for side, sign in (("upper", 1), ("lower", -1)):
            bound = Bound(float(value), side, 0.01, Covers.ONE_PROMPT, "a", "m", 1)  # type: ignore[arg-type]
            for text, scale in (
                (bound.percent(), 100),
                (bound.number(), 1),
                (bound.significant(), 1),
            ):
                shown = Fraction(Decimal(text.rstrip("%").replace(",", ""))) / scale
                wrong += sign * (shown - Fraction(Decimal(repr(float(value))))) < 0
    return f"{wrong}"


@simulation("s15", "at most 3.8%")
def others(rng: Rng) -> str:
    """Eleven further bounds: misses, 5%."""
    runs = 500
    worst = 0.0
    for _m, n, p in (
        (20, 64, np.full(20, 0.1)),
        (20, 64, np.r_[0.3, np.zeros(19)]),
        (40, 1, np.r_[0.05, np.zeros(39)]),
    ):
        missed = np.zeros(5)
        truth = at_least_once(p, [1, 7, 50]).mean(axis=0)
        for _ in range(runs):
            leaks = rng.binomial(n, p)
            top = Rate.of(leaks, n).worst(0.05)
            mean = Rate.of(leaks, n).mean(0.05, [1, 7, 50])
            listed = holm(binary_p_value(leaks, n, 0.1), 0.1, 0.05)[0]
            missed += (
                top.lower[0] > p.max() + 1e-12,
                top.upper[0] < p.max() - 1e-12,
                (mean.lower > truth + 1e-12).any(),
                (mean.upper < truth - 1e-12).any(),
                (listed & (p > 0.1)).any(),
            )
        worst = max(worst, missed.max() / runs)
    curve = np.array([0.02, 0.05, 0.1, 0.3, 0.5])
    missed = np.zeros(6)
    for _ in range(runs):

        def counted(rates: np.ndarray) -> list[many_prompts.Counted]:
            hits = enumerate(rng.binomial(300, rates))
            return [many_prompts.Counted(step, leaks, leaks, 300, True) for step, leaks in hits]

        counts = counted(curve)
        points = many_prompts.band(counts, 0.05)
        half = many_prompts.half_life(points, many_prompts.band(counted(np.array([0.6])), 0.05)[0])
        more = many_prompts.excess(counts, counted(curve / 2), 0.05)
        groups = [rng.beta(0.5, 2, 12), rng.beta(2, 0.5, 12), (rng.random(12) < 0.5).astype(float)]
        mean, spread = (
            many_prompts.mean_interval(groups, 0.05),
            many_prompts.within_variance_interval(groups, 0.05),
        )
        masses = np.r_[0.3, np.full(70, 0.01)]
        texts = [len(set(row)) for row in rng.choice(71, (4, 30), p=masses)]
        kinds = many_prompts.distinct_share_interval(texts, [30] * 4, 0.05)
        area = auc_interval(rng.poisson(1.0, 15), rng.poisson(0.5, 15), 0.05)
        missed += (
            any(
                not point.lower.value <= p <= point.upper.value
                for point, p in zip(points, curve, strict=True)
            )
            or any(
                not point.lower.value <= p / 2 <= point.upper.value
                for point, p in zip(more, curve, strict=True)
            ),
            (half.earliest or 9) > 3 or (half.latest or 3) < 3,
            not mean.lower <= 1.5 / 3 <= mean.upper,
            not spread.lower <= (2 * (0.5 * 2 / (2.5**2 * 3.5)) + 0.25) / 3 <= spread.upper,
            not kinds.lower <= (1 - (1 - masses) ** 30).sum() / 30 <= kinds.upper,
            not area.lower <= 0.6467 <= area.upper,
        )
    return f"at most {max(worst, missed.max() / runs):.1%}"


@simulation("s16", "1")
def labels_of_rest(rng: Rng) -> str:
    """`lethe label`: upper end without / with the rest's labels."""
    gains = []
    for rest, share in ((0.05, 0.05), (0.3, 0.1), (0.6, 0.02)):
        ends = []
        for _ in range(100):
            missing = rng.binomial(15_360, rest)
            hits = int(rng.binomial(100, share))
            known = np.array([0]), np.array([missing]), np.array([15_360])
            ends.append(
                [labelled_average(*known, labels, 0.05)[1] for labels in (None, (hits, 100))]
            )
        gains.append(np.divide(*np.median(ends, axis=0)))
    return f"{min(gains):.1f} to {max(gains):.1f}"


@simulation("s19", "0")
def mean_of_ones(rng: Rng) -> str:
    """Lower mean of 1,024 ones."""
    ones = np.ones((1, 1024))
    paper = paper_bounds(ones, 0.01, np.array([])).m_mu_lower[0]
    return f"{paper:.0f}; betting {betting.mean_lower(ones, 0.01)[0]:.4f}"


@simulation("s22", "21%")
def bounded_counts(rng: Rng) -> str:
    """False *bounded* of 30, 1%."""
    rho = 1500.0
    tau = 0.01
    alpha = 0.01
    runs = 2000
    masses = Masses((0.0,), (0.5,))
    hits = rng.poisson(1500 * 0.01 * 1.0001, (runs, 30))
    false = 0
    for row in hits:
        questions = [(masses, Remainder(rho, int(leaks), int(leaks))) for leaks in row]
        false += bool(together_below(questions, tau, alpha).any())
    return f"{false / runs:.1%}"


@simulation("labels_first", "1.2 to 9")
def labels_first(rng: Rng) -> str:
    """Judge's box / labels; labels' misses, 10%."""
    gains = []
    missed = 0
    for p, se, fp in ((0.5, 0.95, 0.15), (0.2, 0.9, 0.05), (0.02, 0.8, 0.01), (0.1, 0.99, 0.02)):
        widths = []
        for _ in range(100):
            truth = rng.random(30_720) < p
            called = np.where(truth, rng.random(truth.size) < se, rng.random(truth.size) < fp)
            known = truth[:200]
            low, high = random_labels(int(known.sum()), 200, 0.05)
            missed += not low <= p <= high
            if known.any():
                judge = Calibration.of(known, called[:200], of_this_run=True)
                band = Rate.of([called.sum()], called.size, judge=judge).average(0.05)
                widths.append((band.upper[0] - band.lower[0], high - low))
        gains.append(np.divide(*np.median(widths, axis=0)))
    return f"{min(gains):.1f} to {max(gains):.1f}; {missed / 400:.1%}"
