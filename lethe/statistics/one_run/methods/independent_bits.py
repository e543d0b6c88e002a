"""Methods for independent channels per bit: exact, chernoff, independent and clopper-pearson.

Given the largest loss that is not released, the released guesses err independently with probability G(S) / S, where the
mass S above that loss is Beta(r + 1, n - r). P(U <= u) is therefore one integral of a binomial tail, which ``exact``
computes. ``chernoff`` is the bound of Xiang et al. ("Tight Privacy Audit in One Run", 2025, Theorem 3 and Proposition 1):
Chernoff's inequality for errors that are independent by rank. Released errors are positively correlated, so the true level of
a nominal 5% test reaches 18.6% for the family (0, delta); elsewhere the slack of the inequality hides the error.
``clopper-pearson`` bounds both error rates (Nasr et al. 2023; equation 6 of Xiang et al.), each at half the level.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache, partial

import numpy as np
from scipy import special

from lethe.errors import BadValue
from lethe.statistics.one_run.channel import Channel, bracket_root
from lethe.statistics.one_run.counts import Counts
from lethe.statistics.one_run.integral import NODES, WEIGHTS, log_beta_average, log_cdf, unresolved
from lethe.statistics.one_run.methods import Method

SINGLE_RANKS = 100  # ranks summed one by one at each end of 1..n; between them an integral replaces the sum
# sum from a to b = integral from a - 1/2 to b + 1/2, minus F'/24 - 7 F'''/5760 between its ends. At an end between the
# second and third of four ranks, the derivatives are differences of F.
END_WEIGHTS = np.array([0, -1, 1, 0]) / 24 + np.array([1, -3, 3, -1]) * 17 / 5760
INNER_NODES, INNER_WEIGHTS = np.polynomial.legendre.leggauss(12)
DEVIATIONS_IN_PANEL = 2.5  # of an order statistic's logit
CHUNK = 64  # ranks integrated together, with the number of panels that the widest rank needs
SMALLEST_LOG_LEVEL = -700.0


def exact(counts: Counts, channel: Channel) -> float:
    """ln P(at most the observed errors) under the product of ``channel``."""
    n, r, u = counts.n, counts.r, counts.errors
    if u == r:
        return 0.0
    if r == n:
        return float(log_cdf(u, n, channel.error_mass(np.array(1.0))))
    return min(0.0, log_beta_average(lambda s: log_cdf(u, r, channel.error_mass(s) / s), n, r, channel.breaks))


def independent(counts: Counts, channel: Channel) -> float:
    """ln P(at most the observed errors), where each of the n guesses errs independently (Xiang et al. 2025)."""
    return float(log_cdf(counts.errors, counts.n, channel.error_mass(np.array(1.0))))


def _filtered(counts: Counts, method: str) -> BadValue | None:
    """The error for guesses that are not all released."""
    if counts.r == counts.n:
        return None
    return BadValue("r", counts.r, f"n = {counts.n} for the method {method}", "Filtering makes guesses dependent.")


def chernoff(counts: Counts, channel: Channel) -> float:
    """min over lambda < 0 of -lambda u + sum over the r released ranks of ln(1 - v_k + v_k e^lambda)."""
    rates, weights = rank_error_rates(channel, counts.n, counts.r)
    return chernoff_bound(counts.errors, rates, weights)


def chernoff_bound(u: int, rates: np.ndarray, weights: np.ndarray) -> float:
    """ln of Chernoff's bound on P(sum of independent errors <= u)."""
    if u == 0:
        return float(weights @ np.log1p(-rates))
    if u >= weights @ rates:
        return 0.0

    def expected_errors(log_x: float) -> float:  # under the tilted distribution, at lambda = log_x
        odds = rates / (1 - rates) * math.exp(log_x)
        return float(weights @ (odds / (1 + odds))) - u

    low = -1.0
    while expected_errors(low) > 0:
        low *= 2
    at, _ = bracket_root(expected_errors, low, 0.0, 1e-11)
    return min(0.0, float(-at * u + weights @ np.log1p(rates * math.expm1(at))))


@lru_cache(maxsize=16)  # independent of the number of errors
def rank_error_rates(channel: Channel, n: int, r: int) -> tuple[np.ndarray, np.ndarray]:
    """The error probabilities v_j of the guesses of rank j = 1 (largest loss) to r, as (rates, number of ranks of each).

    For small n every rank is computed; otherwise quadrature nodes replace the ranks between `SINGLE_RANKS` at each end. v_j
    is smooth in j on the scale of the order statistic's standard deviation, so the sum over ranks equals an integral plus
    Euler-Maclaurin terms at the ends, written as central differences of the ranks around the ends.
    """
    first, last = min(r, SINGLE_RANKS), min(r, n - SINGLE_RANKS - 1)
    if last - first < 4 * SINGLE_RANKS:
        ranks = np.arange(1.0, r + 1)
        return _rank_rates(channel, n, ranks), np.ones(r)
    single = np.concatenate([np.arange(1.0, first + 1), np.arange(last + 1.0, r + 1)])
    rates, weights = [_rank_rates(channel, n, single)], [np.ones(single.size)]
    for end, sign in ((first, 1.0), (last, -1.0)):
        rates.append(_rank_rates(channel, n, end + np.arange(-1.0, 3)))
        weights.append(sign * END_WEIGHTS)
    # On the scale asin sqrt(j / n), every order statistic has the same standard deviation.
    angle = np.arcsin(np.sqrt(np.array([first + 0.5, last + 0.5]) / n))
    panels = np.linspace(angle[0], angle[1], 13)
    low, high = panels[:-1], panels[1:]
    while low.size:
        half, middle = 0.5 * (high - low), 0.5 * (high + low)
        theta = middle[:, None] + half[:, None] * NODES
        rank = n * np.sin(theta) ** 2
        rate = _rank_rates(channel, n, rank.ravel()).reshape(rank.shape)
        rough = unresolved(rate) > 1e-11 + 1e-9 * rate.max(axis=1)
        rough &= half > 0.2 / math.sqrt(n)
        keep = ~rough
        rates.append(rate[keep].ravel())
        weights.append((half[:, None] * WEIGHTS * n * np.sin(2 * theta))[keep].ravel())
        low, high = np.concatenate([low[rough], middle[rough]]), np.concatenate([middle[rough], high[rough]])
    return np.concatenate(rates), np.concatenate(weights)


def _rank_rates(channel: Channel, n: int, rank: np.ndarray) -> np.ndarray:
    """E[error rate at S] for S ~ Beta(rank, n + 1 - rank), each integral over logit s split at the channel's breaks."""
    if rank.size > CHUNK:
        parts = np.array_split(rank, -(-rank.size // CHUNK))
        return np.concatenate([_rank_rates(channel, n, part) for part in parts])
    a, b = rank[:, None], n + 1 - rank[:, None]
    centre, deviation = np.log(a / b), np.sqrt(1 / a + 1 / b)
    # The integrand falls to e^-32 of its peak within eight deviations, or in the tails e^(a y) left and e^(-b y) right.
    low, high = centre - 8 * deviation - 32 / a, centre + 8 * deviation + 32 / b
    panels = int(np.ceil(np.max((high - low) / deviation) / DEVIATIONS_IN_PANEL))
    cuts = [low, *(np.clip(special.logit(s), low, high) for s in channel.breaks if 0 < s < 1), high]
    total, norm = np.zeros(rank.size), np.zeros(rank.size)
    peak = a * special.log_expit(centre) + b * special.log_expit(-centre)
    for left, right in itertools.pairwise(cuts):
        inside = (right > left).ravel()
        if not inside.any():
            continue
        half = 0.5 * (right - left)[inside] / panels
        y = left[inside] + half * (2 * np.arange(panels)[:, None] + 1 + INNER_NODES).ravel()
        log_density = a[inside] * special.log_expit(y) + b[inside] * special.log_expit(-y)
        density = np.exp(log_density - peak[inside]) * np.tile(INNER_WEIGHTS, panels) * half
        total[inside] += (density * channel.error_rate(special.expit(y))).sum(axis=1)
        norm[inside] += density.sum(axis=1)
    return total / norm  # the logarithm of the beta function would lose ten digits at n = 1e6


def _clopper_pearson_refusal(counts: Counts) -> BadValue | None:
    """The error for counts without separate false positives, or for filtered guesses; None if the method applies."""
    if counts.negatives is None:
        return BadValue(
            "guesses",
            "counts only",
            "a file of guesses for the method clopper-pearson",
            "The method needs separate counts of false positives and false negatives.",
        )
    return _filtered(counts, "clopper-pearson")


def clopper_pearson(counts: Counts, epsilon: float, delta: float) -> float:
    """ln of the smallest level at which equation 6 gives more than ``epsilon``."""
    if lower_bound(counts, delta, 1.0) <= epsilon:
        return 0.0
    low, high = SMALLEST_LOG_LEVEL, 0.0
    while high - low > 1e-12 * max(1.0, -high):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (low, middle) if lower_bound(counts, delta, math.exp(middle)) > epsilon else (middle, high)
    return high


def lower_bound(counts: Counts, delta: float, alpha: float) -> float:
    """Equation 6 at confidence 1 - ``alpha``; 0 where the equation is vacuous."""
    negatives, false_positives = counts.by_bit()
    fpr = _upper(false_positives, negatives, alpha / 2)
    fnr = _upper(counts.errors - false_positives, counts.n - negatives, alpha / 2)
    best = 0.0
    for one, other in ((fpr, fnr), (fnr, fpr)):
        if 1 - delta - one > 0:
            best = max(best, math.log((1 - delta - one) / other))
    return best


def _upper(k: int, n: int, alpha: float) -> float:
    """`bounds.binary_upper` in one form for all levels, so that the search for a p-value meets no seam at a tiny level."""
    return 1.0 if k >= n else float(special.betainccinv(k + 1, n - k, alpha))


ALL = ("product_channel", "family", "r_fixed", "iid_bits")
MEMBERS = {
    "exact": Method(
        ALL,
        "exact when each bit passes its own independent channel; can reject a private mechanism when bits share randomness",
        exact,
    ),
    "chernoff": Method(
        ALL,
        "the published bound; not always conservative even for independent channels",
        chernoff,
        CONSERVATIVE=False,
    ),
    "independent": Method(
        ("product_channel", "family", "iid_bits"),
        "for independent guesses that are all released",
        independent,
        refusal=partial(_filtered, method="independent"),
    ),
    "clopper-pearson": Method(
        ("product_channel",),
        "for independent guesses that are all released; bounds (epsilon, delta)-DP for any family",
        clopper_pearson,
        FAMILY_FREE=True,
        refusal=_clopper_pearson_refusal,
    ),
}
