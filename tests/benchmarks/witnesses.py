"""Random witnesses and ends for the checker of statements: it must verify no end that SciPy calls too tight.

A million cases take minutes; the suite runs a thousand. Ends are drawn around the true one, where a fault would show.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.stats import binom, poisson

from lethe.certificates import check
from lethe.certificates.check import Witness
from lethe.statistics.anytime import log_below
from tests.benchmarks import marks

MOST = 400  # answers of a witness
DENOMINATOR = 10**6
ROUNDING = 1e-9  # of SciPy's logarithms
KINDS = ("Clopper-Pearson", "Garwood", "at any time")


@dataclass(frozen=True)
class Cases:
    """(cases,) counts of answers, ends in millionths, levels in millionths, and the kinds of the ends."""

    count: np.ndarray
    n: np.ndarray
    end: np.ndarray
    alpha: np.ndarray
    kind: np.ndarray


def cases_of(number: int, seed: int) -> Cases:
    random = np.random.default_rng(seed)
    n = random.integers(1, MOST + 1, number)
    count = random.integers(0, n + 1)
    kind = random.integers(0, len(KINDS), number)
    spread = np.sqrt((count + 1) * (n - count + 1)) / n**1.5
    end = np.clip(count / n + spread * random.uniform(-1, 5, number), 1e-6, 1 - 1e-6)
    mean = np.maximum(count + np.sqrt(count + 1) * random.uniform(-1, 5, number), 1e-6)
    millionths = np.where(kind == 1, mean, end) * DENOMINATOR
    alpha = random.integers(1, DENOMINATOR // 2, number)
    return Cases(count, n, millionths.astype(np.int64), alpha, kind)


def verified(cases: Cases) -> np.ndarray:
    """(cases,) what the checker says."""
    said = []
    columns = (cases.count, cases.n, cases.end, cases.alpha, cases.kind)
    for count, n, end, alpha, kind in zip(*map(np.ndarray.tolist, columns), strict=True):
        value, level = Fraction(end, DENOMINATOR), Fraction(alpha, DENOMINATOR)
        if kind == 0:
            said.append(check.upper_end_holds(Witness(count, n), value, level))
        elif kind == 1:
            said.append(check.mean_holds(count, value, level))
        else:
            said.append(check.anytime_upper_holds(Witness(count, n), value, level))
    return np.array(said)


def log_excess(cases: Cases) -> np.ndarray:
    """(cases,) by how much ln of the tail or of 1 / e exceeds ln alpha, by SciPy; above 0 the end is too tight."""
    end, alpha = cases.end / DENOMINATOR, cases.alpha / DENOMINATOR
    share = np.clip(end, 1e-6, 1 - 1e-6)
    tails = [binom.logcdf(cases.count, cases.n, share), poisson.logcdf(cases.count, end)]
    tails.append(-log_below(cases.count, cases.n, share))
    return np.choose(cases.kind, tails) - np.log(alpha)


def wrong(number: int, seed: int) -> tuple[int, int, int]:
    """How many ends were verified, how many of them are too tight, and how many that hold were not verified."""
    cases = cases_of(number, seed)
    said, excess = verified(cases), log_excess(cases)
    tight = said & (excess > ROUNDING)
    lost = ~said & (excess < -ROUNDING)
    return int(said.sum()), int(tight.sum()), int(lost.sum())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = marks.parser_of(__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    size = 10_000
    found = np.zeros(3, dtype=np.int64)
    for part in range(-(-chosen.cases // size)):
        number = min(size, chosen.cases - part * size)
        found += wrong(number, chosen.seed + part)
    print(f"{chosen.cases:,} ends: {found[0]:,} verified, {found[1]:,} of them too tight; ", end="")
    print(f"{found[2]:,} that hold were not verified")
    return int(found[1] > 0)


if __name__ == "__main__":
    sys.exit(main())
