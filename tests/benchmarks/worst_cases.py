"""The worst case of each newer bound, at alpha .01 and .05: ``python -m tests.benchmarks worst-cases [--runs N]``.

Every case is tried in a tenth of the runs; the three with most misses are then run in full, with other seeds, so that the
printed share is not the luckiest of many. A bound may miss in at most alpha; the status is 1 where one misses more often
than chance allows.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from scipy.stats import binom

from lethe.statistics import betting
from lethe.statistics.counts import at_least_once, labelled_average, random_labels
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate, share_exceeding
from lethe.statistics.mean_difference import difference, mean_of_differences
from tests.lethe.statistics.draws import tolerated

Rng = np.random.Generator
Case = Callable[
    [Rng, int, float], float
]  # the share of the runs that a bound misses at alpha, by the side that misses more
Cases = Iterator[tuple[str, Case]]
ROUNDING = 1e-9


def more(*missed: np.ndarray) -> float:
    return float(max(np.mean(side) for side in missed))


def means() -> Cases:
    for p, n in itertools.product((0.005, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98), (8, 24, 64, 200, 600)):

        def coins(rng: Rng, runs: int, alpha: float, p: float = p, n: int = n) -> float:
            return more(betting.mean_upper((rng.random((runs, n)) < p) * 1.0, alpha) < p - ROUNDING)

        yield f"coins of {p:g}, n={n}", coins
    for a, b, n in itertools.product((0.2, 1, 5), (0.2, 5), (24, 200)):

        def betas(rng: Rng, runs: int, alpha: float, a: float = a, b: float = b, n: int = n) -> float:
            return more(betting.mean_upper(rng.beta(a, b, (runs, n)), alpha) < a / (a + b) - ROUNDING)

        yield f"Beta({a:g}, {b:g}), n={n}", betas


def paired() -> Cases:
    for up, down, n in itertools.product((0.02, 0.2, 0.5), (0.0, 0.02, 0.2, 0.5), (16, 64, 300)):

        def pairs(rng: Rng, runs: int, alpha: float, up: float = up, down: float = down, n: int = n) -> float:
            draws = rng.random((runs, n))
            halves = np.where(draws < up, 1.0, np.where(draws < up + down, 0.0, 0.5))
            low = betting.mean_lower(halves, alpha / 2, recomputed=False)
            return 2 * more(low > 0.5 + (up - down) / 2 + ROUNDING)  # two sides, each at half of alpha

        yield f"rises {up:g}, falls {down:g}, n={n}", pairs


def apart() -> Cases:
    """Exact: the chance of every pair of counts."""
    cells: dict[tuple[float, int, int], np.ndarray] = {}
    for (n, m), p, q in itertools.product(((6, 6), (10, 4)), (0.02, 0.1, 0.3, 0.5), (0.02, 0.1, 0.3, 0.5, 0.9)):

        def exact(rng: Rng, runs: int, alpha: float, n: int = n, m: int = m, p: float = p, q: float = q) -> float:
            if (alpha, n, m) not in cells:
                sides = [[np.repeat([1.0, 0.0], [k, size - k]) for k in range(size + 1)] for size in (n, m)]
                found = [[difference(a, b, alpha, True, draws="apart") for b in sides[1]] for a in sides[0]]
                cells[alpha, n, m] = np.array([[(one.low, one.high) for one in row] for row in found])
            low, high = np.moveaxis(cells[alpha, n, m], 2, 0)
            chance = np.outer(binom.pmf(np.arange(n + 1), n, p), binom.pmf(np.arange(m + 1), m, q))
            return float(chance[(low > q - p + ROUNDING) | (high < q - p - ROUNDING)].sum())

        yield f"{p:g} of {n}, {q:g} of {m}", exact


def one_each() -> Cases:
    for m, same in itertools.product((6, 15, 60), (0.0, 0.5, 0.9)):

        def signs(rng: Rng, runs: int, alpha: float, m: int = m, same: float = same) -> float:
            rejected = 0
            for _ in range(runs // 4):
                a = rng.random((m, 1)) < 0.5
                b = np.where(rng.random((m, 1)) < same, a, rng.random((m, 1)) < 0.5)
                found = mean_of_differences(list(a * 1.0), list(b * 1.0), alpha, True)
                rejected += found is not None and found.p_value <= alpha
            return rejected / (runs // 4)

        yield f"{m} questions, {same:.0%} alike", signs


def leaks_at_k() -> Cases:
    ks = [1, 5, 20, 200]
    for m, n in ((4, 30), (20, 100), (40, 1024)):
        laws = {
            "all .0005": np.full(m, 0.0005),
            "all .05": np.full(m, 0.05),
            "all .5": np.full(m, 0.5),
            "one .5": np.r_[np.zeros(m - 1), 0.5],
            "half .05": np.repeat([0.0, 0.05], [m // 2, m - m // 2]),
            "one .02": np.r_[np.zeros(m - 1), 0.02],
        }
        for name, p in laws.items():

            def rates(rng: Rng, runs: int, alpha: float, n: int = n, p: np.ndarray = p) -> float:
                truth, missed = at_least_once(p, ks).mean(axis=0), []
                for _ in range(runs // 4):
                    band = Rate.of(rng.binomial(n, p), n).mean(alpha, ks)
                    missed.append(((band.lower > truth + ROUNDING).any(), (band.upper < truth - ROUNDING).any()))
                return more(*np.transpose(missed))

            yield f"{name} of {m}, n={n}", rates


def shares() -> Cases:
    for prompts, n, tau, share in itertools.product((20, 64), (16, 64), (0.1, 0.2), (0.05, 0.3, 0.7)):

        def languages(
            rng: Rng,
            runs: int,
            alpha: float,
            prompts: int = prompts,
            n: int = n,
            tau: float = tau,
            share: float = share,
        ) -> float:
            missed = []
            for _ in range(runs // 4):
                above = rng.random(prompts) < share
                high = Rate.of(rng.binomial(n, np.where(above, tau * 1.0001, 0.0)), n)
                low = Rate.of(rng.binomial(n, np.where(above, 1.0, tau)), n)
                missed.append(
                    (
                        share_exceeding(high, tau, alpha, "upper").value < share - ROUNDING,
                        share_exceeding(low, tau, alpha, "lower").value > share + ROUNDING,
                    )
                )
            return more(*np.transpose(missed))

        yield f"{prompts} prompts, {share:g} at tau={tau:g}, n={n}", languages


def labels() -> Cases:
    """Exact: the chance of every count."""
    for m, p in itertools.product((10, 50, 200), (0.003, 0.01, 0.02, 0.05, 0.1, 0.22, 0.5)):

        def alone(rng: Rng, runs: int, alpha: float, m: int = m, p: float = p) -> float:
            ends = np.array([random_labels(hits, m, alpha) for hits in range(m + 1)])
            chance = binom.pmf(np.arange(m + 1), m, p)
            return float(max(chance[ends[:, 0] > p].sum(), chance[ends[:, 1] < p].sum()))

        yield f"{m} labels, leak {p:g}", alone


def labelled_mass() -> Cases:
    for rest, share, kept in itertools.product((0.05, 0.3), (0.0, 0.02, 0.5), (0.0, 0.2)):

        def masses(
            rng: Rng, runs: int, alpha: float, rest: float = rest, share: float = share, kept: float = kept
        ) -> float:
            truth, missed = kept * (1 - rest) + rest * share, []
            for _ in range(runs // 4):
                outside = rng.binomial(2000, rest)
                leaks, hits = rng.binomial(2000 - outside, kept), rng.binomial(100, share)
                low, high = labelled_average(
                    np.array([leaks]), np.array([outside]), np.array([2000]), (int(hits), 100), alpha
                )
                missed.append((low > truth + ROUNDING, high < truth - ROUNDING))
            return more(*np.transpose(missed))

        yield f"rest {rest:g} with {share:g} leaks, {kept:g} elsewhere", masses


def judged() -> Cases:
    for p, se, fp, n in itertools.product((0.01, 0.2, 0.6), (0.6, 0.95), (0.01, 0.2), (200, 20_000)):

        def boxes(
            rng: Rng, runs: int, alpha: float, p: float = p, se: float = se, fp: float = fp, n: int = n
        ) -> float:
            missed = []
            for _ in range(runs // 4):
                judge = Calibration(100, int(rng.binomial(100, se)), 100, int(rng.binomial(100, fp)))
                band = Rate.of([rng.binomial(n, p * se + (1 - p) * fp)], n, judge=judge).average(alpha)
                missed.append((band.lower[0] > p + ROUNDING, band.upper[0] < p - ROUNDING))
            return more(*np.transpose(missed))

        yield f"leak {p:g}, finds {se:g}, false alarms {fp:g}, n={n}", boxes


BOUNDS: dict[str, Callable[[], Cases]] = {
    "betting, mean": means,
    "betting, pairs": paired,
    "two seeds, Fisher (exact)": apart,
    "one answer each, sign test": one_each,
    "mean leak@k": leaks_at_k,
    "language share": shares,
    "labels alone (exact)": labels,
    "labelled mass and rest": labelled_mass,
    "judged average": judged,
}


def worst(name: str, alpha: float, runs: int) -> tuple[float, str]:
    cases = dict(BOUNDS[name]())
    seed = zlib.crc32(name.encode())
    tried = sorted(
        cases, key=lambda one: -cases[one](np.random.default_rng([seed, 1]), max(40, runs // 10), alpha)
    )
    return max((cases[one](np.random.default_rng([seed, 2]), runs, alpha), one) for one in tried[:3])


def main(arguments: list[str]) -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.benchmarks worst-cases", description=__doc__)
    asked.add_argument("--runs", type=int, default=20_000, help="runs; a quarter for bounds made one by one")
    asked.add_argument("--only", default="", help="the beginning of a bound's name")
    given, wrong = asked.parse_args(arguments), False
    print("bound | misses at .01 | worst case | misses at .05 | worst case\n---|---|---|---|---")
    for name in [name for name in BOUNDS if name.startswith(given.only)]:
        found = [worst(name, alpha, given.runs) for alpha in (0.01, 0.05)]
        wrong |= any(
            share > tolerated(alpha, given.runs // 4)
            for (share, _), alpha in zip(found, (0.01, 0.05), strict=True)
        )
        print(f"{name} | " + " | ".join(f"{share:.2%} | {case}" for share, case in found), flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
