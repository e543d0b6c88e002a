"""Simultaneous confidence bands for a distribution function."""

import math
from collections.abc import MutableMapping

import numpy as np
from scipy.special import betaincinv, gammaln, xlogy

from lethe.statistics.checks import check_alpha, check_count

LARGEST_BERK_JONES = 20_000  # draws; solving the level takes about 15 s here and minutes beyond
MOST_EXACT = 128  # draws up to which a level is solved for each n, in a tenth of a second
# Levels at the n of `outward_eta`, by alpha and k: solved to 1e-10 and rounded down at 9 digits.
ETA_OF_STEP = {
    0.01: {
        14: 0.000350760285,
        15: 0.000308417996,
        16: 0.000273820734,
        17: 0.000245253522,
        18: 0.000221376450,
        19: 0.000201240567,
        20: 0.000184077703,
        21: 0.000169338966,
        22: 0.000156563695,
        23: 0.000145421281,
        24: 0.000135623828,
        25: 0.000126960719,
        26: 0.000119257319,
        27: 0.000112366456,
        28: 0.000106171614,
        29: 0.000100577922,
    },
    0.05: {
        14: 0.00224318169,
        15: 0.00198583101,
        16: 0.00177321191,
        17: 0.00159588257,
        18: 0.00144632099,
        19: 0.00131916348,
        20: 0.00120998668,
        21: 0.00111561592,
        22: 0.00103333869,
        23: 0.000961203928,
        24: 0.000897482805,
        25: 0.000840908068,
        26: 0.000790418103,
        27: 0.000745108908,
        28: 0.000704261110,
        29: 0.000667285485,
    },
}
_SOLVED: dict[tuple[int, float], float] = {}  # for callers that do not store levels


def dkw(n: int, alpha: float, sides: int = 1) -> float:
    """Half-width of the Dvoretzky-Kiefer-Wolfowitz band with Massart's constant (1990), for
    independent draws.

    ``sides`` is 1 for F(x) >= F_n(x) - e at all x at once, 2 for |F(x) - F_n(x)| <= e; the
    one-sided band needs alpha <= 1/2.
    """
    check_count("n", n)
    check_alpha(alpha)
    return math.sqrt(math.log(sides / alpha) / (2 * n))


def berk_jones(n: int, eta: float, ranks: np.ndarray | None = None) -> np.ndarray:
    """(n,) lower bounds b_i of F at the i-th smallest draw: the eta-quantiles of its Beta(i, n - i
    + 1) law.

    With eta from `berk_jones_eta` all bounds hold at once with probability 1 - alpha: exactly where
    F is continuous, at least elsewhere. Beyond the largest draw the band gives P(X > x) <= 1 -
    eta^(1/n), far below DKW's. ``ranks``, of any shape, asks for the bounds of these i alone.
    """
    check_count("n", n)
    if ranks is None:
        ranks = np.arange(1, n + 1)
    return betaincinv(ranks, n - ranks + 1, eta)


def berk_jones_eta(
    n: int, alpha: float, solved: MutableMapping[tuple[int, float], float] | None = None
) -> float:
    """The level of each quantile at which the whole band holds with probability 1 - alpha; relative
    error 1e-10.

    The band is that of Berk and Jones (1979); its joint level is computed exactly, not
    approximated, in seconds for n in the thousands. ``solved`` holds levels by (n, alpha), to which
    a new one is added; by default those of this process.
    """
    check_count("n", n)
    check_alpha(alpha)
    solved = _SOLVED if solved is None else solved
    eta = solved.get((n, alpha))
    if eta is None:
        eta = solved[n, alpha] = _solve_eta(n, alpha)
    return eta


def outward_eta(
    n: int, alpha: float, solved: MutableMapping[tuple[int, float], float] | None = None
) -> float:
    """A level of each quantile at which the band of ``n`` draws holds with probability 1 - alpha at least.

    Up to `MOST_EXACT` draws the level is that of `berk_jones_eta`. Beyond, the level is that of the next n of the form
    2^(k/2), because the level falls with n; there it is at most an eighth smaller. So a table of prompts with
    unequal n needs a few levels, and not one for each n.
    """
    if n <= MOST_EXACT:
        return berk_jones_eta(n, alpha, solved)
    step = math.ceil(2 * math.log2(n) - 1e-9)
    if round(2 ** (step / 2)) < n:  # the rounded power lies below its own root
        step += 1
    known = ETA_OF_STEP.get(alpha, {}).get(step)
    if known is not None:
        return known
    return berk_jones_eta(round(2 ** (step / 2)), alpha, solved)


def _solve_eta(n: int, alpha: float) -> float:
    from scipy.optimize import brentq  # the import takes 0.25 s, which a solved level need not pay

    def excess(log_eta: float) -> float:
        return math.log(crossing(berk_jones(n, math.exp(log_eta))) / alpha)

    # The probability that some quantile fails is at least eta (one quantile alone) and at most n
    # eta (union bound).
    lowest = math.log(alpha / n) - 1e-6
    highest = math.log(alpha) + 1e-6
    return math.exp(brentq(excess, lowest, highest, xtol=1e-11, rtol=1e-11))


def crossing(lower: np.ndarray) -> float:
    """P(U_(i) < lower_i for some i) for the order statistics of n uniform draws; ``lower`` is
    non-decreasing.

    The draws are a Poisson process of rate n, conditioned on n points. In ascending order, the
    first i to fail is the first for which at least i points lie below lower_i. The failing masses
    are summed, so no digits cancel, however small the result. Each step to the next lower_i
    convolves the distribution of the count with a Poisson distribution. Counts whose probability is
    below 1e-20 of the whole are dropped. The time is O(n^2) at worst.
    """
    n = len(lower)
    log_factorials = gammaln(np.arange(n + 1) + 1.0)
    log_total = n * math.log(n) - n - log_factorials[n]
    expected = n * np.diff(lower, prepend=0.0)  # points between two neighbouring lower_i
    points_left = n * (1 - lower)
    failed = 0.0
    start = 0
    mass = np.ones(1)  # mass[k]: chance of ``start + k`` points so far, none failed
    for rank, (gap, left) in enumerate(zip(expected, points_left, strict=True), 1):
        # The Poisson probabilities, cut where the remaining tail is below 1e-20, or at n.
        counts = np.arange(min(int(gap + 12 * math.sqrt(gap) + 30), n + 1))
        log_poisson = xlogy(counts, gap) - gap - log_factorials[: len(counts)]
        mass = np.convolve(mass, np.exp(log_poisson))
        over = mass[max(rank - start, 0) : n + 1 - start]
        mass = mass[: rank - start]

        # Counts above the limit fail here; they contribute if the rest of the n points come later.
        later = n - max(rank, start) - np.arange(len(over))
        log_later = xlogy(later, left) - left - log_factorials[later] - log_total
        failed += over @ np.exp(log_later)
        if not mass.size:
            break
        first = int(np.argmax(mass > 1e-20 * mass.sum()))
        start += first
        mass = mass[first:]
    return float(failed)
