"""Simultaneous confidence bands for a distribution function."""

from __future__ import annotations

import math
from collections.abc import MutableMapping

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, gammaln, xlogy

from stages.statistics.checks import check_alpha, check_count

_SOLVED: dict[tuple[int, float], float] = {}  # for callers that keep no store of their own


def dkw(n: int, alpha: float, sides: int = 1) -> float:
    """Half-width of the Dvoretzky-Kiefer-Wolfowitz band with Massart's constant.

    With probability 1 - alpha, for all x at once, F(x) >= F_n(x) - e (``sides`` 1, valid for alpha <= 1/2), or
    |F(x) - F_n(x)| <= e (``sides`` 2). ``n`` independent draws; no assumption on the distribution.
    """
    check_count("n", n)
    check_alpha(alpha)
    return math.sqrt(math.log(sides / alpha) / (2 * n))


def berk_jones(n: int, eta: float) -> np.ndarray:
    """(n,) lower bounds b_i of F at the i-th smallest draw: the eta-quantiles of its Beta(i, n - i + 1) law.

    With eta from `berk_jones_eta`, all hold at once with probability 1 - alpha, exactly where F is continuous and at
    least elsewhere. Beyond the largest draw the band gives P(X > x) <= 1 - eta^(1/n), far under DKW's.
    """
    check_count("n", n)
    ranks = np.arange(1, n + 1)
    return betaincinv(ranks, n - ranks + 1, eta)


def berk_jones_eta(n: int, alpha: float, known: MutableMapping[tuple[int, float], float] | None = None) -> float:
    """The level of each quantile at which the whole band holds with probability 1 - alpha, to 1e-12 relative.

    Berk and Jones 1979; the joint level is computed exactly, not approximated. That takes seconds for n in the
    thousands: ``known`` keeps what was solved, by (n, alpha).
    """
    check_count("n", n)
    check_alpha(alpha)
    known = _SOLVED if known is None else known
    eta = known.get((n, alpha))
    if eta is None:
        eta = known[n, alpha] = _solve_eta(n, alpha)
    return eta


def _solve_eta(n: int, alpha: float) -> float:
    # The joint miss is at least eta (one quantile alone) and at most n eta (all of them).
    root = brentq(
        lambda log_eta: noncrossing(berk_jones(n, math.exp(log_eta))) - (1 - alpha),
        math.log(alpha / n) - 1e-6,
        math.log(alpha) + 1e-6,
        xtol=1e-13,
        rtol=1e-13,
    )
    return math.exp(root)


def noncrossing(lower: np.ndarray) -> float:
    """P(U_(i) >= lower_i for all i) for the order statistics of n uniform draws; ``lower`` is non-decreasing.

    The draws are a Poisson process of rate n given that it has n points. Its count must stay under i up to
    lower_i: one convolution with a Poisson law a step, all terms positive, so nothing cancels. O(n^2) at worst; counts
    whose probability has fallen under 1e-20 of the whole are dropped.
    """
    n = len(lower)
    start, mass = 0, np.ones(1)  # mass[k]: probability of ``start + k`` points so far, all conditions kept
    gaps = np.diff(lower, prepend=0.0, append=1.0)
    for rank, gap in enumerate(gaps[:-1], start=1):
        mass = np.convolve(mass, _poisson(n * gap))[: rank - start]
        if not mass.size:
            return 0.0
        first = int(np.argmax(mass > 1e-20 * mass.sum()))
        start, mass = start + first, mass[first:]
    missing = n - start - np.arange(len(mass))
    rate = n * gaps[-1]
    log_last = xlogy(missing, rate) - rate - gammaln(missing + 1)
    log_total = n * math.log(n) - n - gammaln(n + 1)
    return float(np.sum(mass * np.exp(log_last - log_total)))


def _poisson(rate: float) -> np.ndarray:
    """The Poisson law of a rate, cut where what is left is under 1e-20."""
    counts = np.arange(int(rate + 12 * math.sqrt(rate) + 30))
    return np.exp(xlogy(counts, rate) - rate - gammaln(counts + 1))
