"""The bound of Xiang et al. ("Tight Privacy Audit in One Run", Theorem 3 and Proposition 1).

The bound applies Chernoff's inequality to errors that are independent by rank.

The bound is not always conservative: released errors are positively correlated, and the bound treats them as
independent. The true level of a nominal 5% test reaches 18.6% for the family (0, delta); elsewhere the slack of
Chernoff's inequality hides the error. The method reproduces the paper; use exact instead.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
from scipy import special

from lethe.statistics.one_run.channel import Channel
from lethe.statistics.one_run.counts import Counts
from lethe.statistics.one_run.quadrature import NODES, WEIGHTS, unresolved
from lethe.statistics.one_run.roots import bracket_root

ASSUMES = ("product_channel", "family", "r_fixed", "iid_bits")
NOTE = "the published bound; not always conservative even for independent channels"
FAMILY_FREE = False
CONSERVATIVE = False

SINGLE_RANKS = 100  # ranks summed one by one at each end of 1..n; between them an integral replaces the sum
# sum from a to b = integral from a - 1/2 to b + 1/2, minus F'/24 - 7 F'''/5760 between its ends. At an end between the
# second and third of four ranks, the derivatives are differences of F.
END_WEIGHTS = np.array([0, -1, 1, 0]) / 24 + np.array([1, -3, 3, -1]) * 17 / 5760
INNER_NODES, INNER_WEIGHTS = np.polynomial.legendre.leggauss(12)
DEVIATIONS_IN_PANEL = 2.5  # of an order statistic's logit
CHUNK = 64  # ranks integrated together, with the number of panels that the widest rank needs


def log_p_value(counts: Counts, channel: Channel) -> float:
    """min over lambda < 0 of -lambda u + sum over the r released ranks of ln(1 - v_k + v_k e^lambda)."""
    rates, weights = rank_error_rates(channel, counts.n, counts.r)
    return chernoff_bound(counts.errors, rates, weights)


def chernoff_bound(u: int, rates: np.ndarray, weights: np.ndarray) -> float:
    """ln of Chernoff's bound on P(sum of independent errors <= u).

    Parameters
    ----------
    u
        The number of errors.
    rates
        The error probabilities, strictly between 0 and 1.
    weights
        The number of errors with each rate.
    """
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
    at, _ = bracket_root(expected_errors, low, 0.0, expected_errors(low), expected_errors(0.0), 1e-11)
    return min(0.0, float(-at * u + weights @ np.log1p(rates * math.expm1(at))))


@lru_cache(maxsize=16)  # independent of the number of errors
def rank_error_rates(channel: Channel, n: int, r: int) -> tuple[np.ndarray, np.ndarray]:
    """The error probabilities v_j of the guesses of rank j = 1 (largest loss) to r, as (rates, number of ranks of each).

    For small n every rank is computed; otherwise quadrature nodes replace the ranks between `SINGLE_RANKS` at each end. v_j
    is smooth in j on the scale of the order statistic's standard deviation, so the sum over ranks equals an integral plus
    Euler-Maclaurin terms at the ends, written as central differences of the ranks around the ends.

    Parameters
    ----------
    channel
        The null.
    n
        The number of all guesses.
    r
        The number of released guesses, from 1 to n.
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
