"""The methods of a one-run audit: a module is a `Method` (``METHOD``), or several by name
(``MEMBERS``).

``log_p_value(counts, channel)`` is ln of the p-value of one null; of a ``FAMILY_FREE`` method it is
``log_p_value(counts, epsilon, delta)`` for the null (epsilon, delta)-DP, which is searched up to
``STRONGEST``.

Methods for independent channels per bit: exact, chernoff, independent and clopper-pearson.

Given the largest loss that is not released, the released guesses err independently with probability
G(S) / S, where the mass S above that loss is Beta(r + 1, n - r). P(U <= u) is therefore one
integral of a binomial tail, which ``exact`` computes. ``chernoff`` is the bound of Xiang et al.
("Tight Privacy Audit in One Run", 2025, Theorem 3 and Proposition 1): Chernoff's inequality for
errors that are independent by rank. Released errors are positively correlated, so the true level of
a nominal 5% test reaches 18.6% for the family (0, delta); elsewhere the slack of the inequality
hides the error. ``clopper-pearson`` bounds both error rates (Nasr et al. 2023; equation 6 of Xiang
et al.), each at half the level.

Methods that hold under any dependence between the bits' channels: steinke and mahloujifar.

Steinke, Nasr and Jagielski (2023): with v right guesses among r and q = 1 / (1 + e^-epsilon),
Theorem 5.2 states P <= P(X >= v) + 2 n delta max over 1 <= i <= v of P(v - i <= X < v) / i, X ~
Binomial(r, q).

Mahloujifar, Melis and Chaudhuri (2024): suppose P(U <= u) = tau. In runs with at least v right
guesses, the mass per bit is R = tau v / n for right guesses and H = tau (r - v) / n for wrong
guesses. f-DP of every bit requires more wrong guesses, so runs with one right guess fewer must
supply them, and so on down to runs without a right guess. If more mass than the released r / n is
needed, tau is impossible. The recursion attains the maximum of the underlying linear program (the
tests solve it).
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy import special

from lethe.errors import BadValue
from lethe.statistics.one_run.channel import Channel, bracket_root
from lethe.statistics.one_run.counts import (
    NODES,
    WEIGHTS,
    ReleasedGuesses,
    halves_of,
    log_beta_average,
    log_cdf,
    log_pmf,
    unresolved,
)

DEFAULT = "exact"
SMALLEST_LOG_LEVEL = -700.0


@dataclass(frozen=True)
class Method:
    """One method: its assumptions (`audit.ASSUMPTIONS` explains the flags), one line about it, and
    its p-value.

    ``CONSERVATIVE``: whether its level holds whenever its assumptions do. ``refusal(counts)`` is
    the error where the method does not apply. ``rejects(counts, channel, log_alpha)`` is a decision
    cheaper than a p-value.
    """

    ASSUMES: tuple[str, ...]
    NOTE: str
    log_p_value: Callable[..., float]
    FAMILY_FREE: bool = False
    CONSERVATIVE: bool = True
    STRONGEST: float = 600.0
    refusal: Callable[[ReleasedGuesses], BadValue | None] = lambda counts: None
    rejects: Callable[[ReleasedGuesses, Channel, float], bool] | None = None


# Ranks summed one by one at each end of 1..n; between them an integral replaces the sum.
SINGLE_RANKS = 100
# sum from a to b = integral from a - 1/2 to b + 1/2, minus F'/24 - 7 F'''/5760 between its ends. At
# an end between the second and third of four ranks, the derivatives are differences of F.
END_WEIGHTS = np.array([0, -1, 1, 0]) / 24 + np.array([1, -3, 3, -1]) * 17 / 5760
INNER_NODES, INNER_WEIGHTS = np.polynomial.legendre.leggauss(12)
DEVIATIONS_IN_PANEL = 2.5  # of an order statistic's logit
CHUNK = 64  # ranks integrated together, with the number of panels that the widest rank needs


def exact(counts: ReleasedGuesses, channel: Channel) -> float:
    """ln P(at most the observed errors) under the product of ``channel``.

    The integral over the order statistic at the cut; see the text of this file.
    """
    n = counts.n
    r = counts.r
    u = counts.errors
    if u == r:
        return 0.0
    if r == n:
        return float(log_cdf(u, n, channel.error_mass(np.array(1.0))))

    def log_tail(s: np.ndarray) -> np.ndarray:
        return log_cdf(u, r, channel.error_mass(s) / s)

    return min(0.0, log_beta_average(log_tail, n, r, channel.breaks))


def independent(counts: ReleasedGuesses, channel: Channel) -> float:
    """ln P(at most the observed errors), where each of the n guesses errs independently (Xiang et
    al. 2025).
    """
    return float(log_cdf(counts.errors, counts.n, channel.error_mass(np.array(1.0))))


def _filtered(counts: ReleasedGuesses, method: str) -> BadValue | None:
    if counts.r == counts.n:
        return None
    legal = f"n = {counts.n} for the method {method}"
    return BadValue("r", counts.r, legal, "Filtering makes guesses dependent.")


def chernoff(counts: ReleasedGuesses, channel: Channel) -> float:
    """min over lambda < 0 of -lambda u + sum over the r released ranks of ln(1 - v_k + v_k
    e^lambda).
    """
    rates, weights = rank_error_rates(channel, counts.n, counts.r)
    return chernoff_bound(counts.errors, rates, weights)


def chernoff_bound(u: int, rates: np.ndarray, weights: np.ndarray) -> float:
    """ln of Chernoff's bound on P(sum of independent errors <= u).

    Parameters
    ----------
    u
        Observed number of errors.
    rates, weights
        (k,) error probabilities, and how many ranks have each.
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
    at, _ = bracket_root(expected_errors, low, 0.0, 1e-11)
    return min(0.0, float(-at * u + weights @ np.log1p(rates * math.expm1(at))))


@lru_cache(maxsize=16)  # independent of the number of errors
def rank_error_rates(channel: Channel, n: int, r: int) -> tuple[np.ndarray, np.ndarray]:
    """The error probabilities v_j of the guesses of rank j = 1 (largest loss) to r, as (rates,
    number of ranks of each).

    For large n quadrature nodes replace the ranks between `SINGLE_RANKS` at each end: v_j is smooth
    in j, so the sum is an integral plus Euler-Maclaurin terms at the ends, written as central
    differences of the ranks around the ends.
    """
    first, last = min(r, SINGLE_RANKS), min(r, n - SINGLE_RANKS - 1)
    if last - first < 4 * SINGLE_RANKS:
        ranks = np.arange(1.0, r + 1)
        return _rank_rates(channel, n, ranks), np.ones(r)
    single = np.concatenate([np.arange(1.0, first + 1), np.arange(last + 1.0, r + 1)])
    rates = [_rank_rates(channel, n, single)]
    weights = [np.ones(single.size)]
    for end, sign in ((first, 1.0), (last, -1.0)):
        rates.append(_rank_rates(channel, n, end + np.arange(-1.0, 3)))
        weights.append(sign * END_WEIGHTS)
    # On the scale asin sqrt(j / n), every order statistic has the same standard deviation.
    angle = np.arcsin(np.sqrt(np.array([first + 0.5, last + 0.5]) / n))
    panels = np.linspace(angle[0], angle[1], 13)
    low, high = panels[:-1], panels[1:]
    while low.size:
        half = 0.5 * (high - low)
        middle = 0.5 * (high + low)
        theta = middle[:, None] + half[:, None] * NODES
        rank = n * np.sin(theta) ** 2
        rate = _rank_rates(channel, n, rank.ravel()).reshape(rank.shape)
        rough = unresolved(rate) > 1e-11 + 1e-9 * rate.max(axis=1)
        rough &= half > 0.2 / math.sqrt(n)
        weight = half[:, None] * WEIGHTS * n * np.sin(2 * theta)
        rates.append(rate[~rough].ravel())
        weights.append(weight[~rough].ravel())
        low, high = halves_of(low[rough], middle[rough], high[rough])
    return np.concatenate(rates), np.concatenate(weights)


def _rank_rates(channel: Channel, n: int, rank: np.ndarray) -> np.ndarray:
    """E[error rate at S] for S ~ Beta(rank, n + 1 - rank), each integral over logit s split at the
    channel's breaks.
    """
    if rank.size > CHUNK:
        parts = np.array_split(rank, -(-rank.size // CHUNK))
        return np.concatenate([_rank_rates(channel, n, part) for part in parts])
    a, b = rank[:, None], n + 1 - rank[:, None]
    centre = np.log(a / b)
    deviation = np.sqrt(1 / a + 1 / b)
    # The integrand falls to e^-32 of its peak within eight deviations, or in the tails e^(a y) left
    # and e^(-b y) right.
    low = centre - 8 * deviation - 32 / a
    high = centre + 8 * deviation + 32 / b
    panels = int(np.ceil(np.max((high - low) / deviation) / DEVIATIONS_IN_PANEL))
    inner = special.logit([s for s in channel.breaks if 0 < s < 1])
    cuts = [low, *(np.clip(y, low, high) for y in inner), high]
    total = np.zeros(rank.size)
    norm = np.zeros(rank.size)
    peak = a * special.log_expit(centre) + b * special.log_expit(-centre)
    for left, right in itertools.pairwise(cuts):
        inside = (right > left).ravel()
        if not inside.any():
            continue
        half = 0.5 * (right - left)[inside] / panels
        odd = 2 * np.arange(panels)[:, None] + 1  # middles of the panels, in half panels
        y = left[inside] + half * (odd + INNER_NODES).ravel()
        log_density = a[inside] * special.log_expit(y) + b[inside] * special.log_expit(-y)
        weights = np.tile(INNER_WEIGHTS, panels)
        density = np.exp(log_density - peak[inside]) * weights * half
        total[inside] += (density * channel.error_rate(special.expit(y))).sum(axis=1)
        norm[inside] += density.sum(axis=1)
    return total / norm  # the logarithm of the beta function would lose ten digits at n = 1e6


def _smallest_log_level(rejected: Callable[[float], bool]) -> float:
    """The smallest ln of a level that is ``rejected``, by bisection down to `SMALLEST_LOG_LEVEL`; 0
    if none is.
    """
    low, high = SMALLEST_LOG_LEVEL, 0.0
    if not rejected(high):
        return high
    if rejected(low):
        return low
    while high - low > 1e-12 * max(1.0, -high):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if rejected(middle):
            high = middle
        else:
            low = middle
    return high


def _clopper_pearson_refusal(counts: ReleasedGuesses) -> BadValue | None:
    if counts.negatives is None:
        return BadValue(
            "guesses",
            "counts only",
            "a file of guesses for the method clopper-pearson",
            "The method needs separate counts of false positives and false negatives.",
        )
    return _filtered(counts, "clopper-pearson")


def clopper_pearson(counts: ReleasedGuesses, epsilon: float, delta: float) -> float:
    """ln of the smallest level at which equation 6 gives more than ``epsilon``."""

    def rejected(log_level: float) -> bool:
        return lower_bound(counts, delta, math.exp(log_level)) > epsilon

    return _smallest_log_level(rejected)


def lower_bound(counts: ReleasedGuesses, delta: float, alpha: float) -> float:
    """Equation 6 at confidence 1 - ``alpha``; 0 where the equation is vacuous."""
    negatives, false_positives = counts.by_bit()
    fpr = _upper(false_positives, negatives, alpha / 2)
    fnr = _upper(counts.errors - false_positives, counts.n - negatives, alpha / 2)
    best = 0.0
    for missed, accepted in ((fpr, fnr), (fnr, fpr)):
        if 1 - delta - missed > 0:
            best = max(best, math.log((1 - delta - missed) / accepted))
    return best


def _upper(k: int, n: int, alpha: float) -> float:
    """`bounds.binary_upper` in one form for all levels, so that the search for a p-value meets no
    seam at a tiny level.
    """
    if k >= n:
        return 1.0
    return float(special.betainccinv(k + 1, n - k, alpha))


LOOK_AHEAD = 64  # steps between two checks of whether the recursion can still reach r / n


def steinke(counts: ReleasedGuesses, epsilon: float, delta: float) -> float:
    """ln of the bound P of Theorem 5.2 at the observed number of right guesses.

    Parameters
    ----------
    counts
        Of the run.
    epsilon, delta
        The null (epsilon, delta)-DP.

    Source: Steinke, Nasr and Jagielski (2023), Theorem 5.2.
    """
    n = counts.n
    r = counts.r
    v = counts.correct
    if v == 0:
        return 0.0
    wrong = special.expit(-epsilon)
    log_tail = float(log_cdf(counts.errors, r, wrong))  # P(X >= v): at most r - v wrong guesses
    if delta == 0 or not math.isfinite(epsilon):
        return log_tail
    # Forty standard deviations from its mean, X has negligible mass: intervals farther above are
    # empty, and longer intervals below only divide by a larger i.
    mean = r * (1 - wrong)
    reach = 40 * math.sqrt(r * wrong * (1 - wrong)) + 40
    highest = min(v - 1, math.ceil(mean + reach))
    lowest = max(0, math.floor(min(v, mean) - reach))
    below = np.arange(highest, lowest - 1, -1)
    mass = np.cumsum(np.exp(log_pmf(r - below, r, wrong)))
    extra = 2 * n * delta * float(np.max(mass / (v - below)))
    if extra <= 0:
        return min(0.0, log_tail)
    return min(0.0, float(np.logaddexp(log_tail, math.log(extra))))


def mahloujifar(counts: ReleasedGuesses, channel: Channel) -> float:
    """ln of the smallest level at which the null is rejected, which the recursion takes."""
    return _smallest_log_level(lambda log_level: rejects(counts, channel, log_level))


def rejects(counts: ReleasedGuesses, channel: Channel, log_tau: float) -> bool:
    """Whether P(U <= errors) cannot be as large as e^log_tau.

    Parameters
    ----------
    counts
        Of the run.
    channel
        The null of each bit.
    log_tau
        ln of a level.

    Source: Mahloujifar, Melis and Chaudhuri (2024).
    """
    n = counts.n
    r = counts.r
    v = counts.correct
    least_errors = channel.least_errors
    limit = r / n
    right = math.exp(log_tau) * v / n
    wrong = math.exp(log_tau) * (r - v) / n
    for i in range(v - 1, -1, -1):
        step = least_errors(right) - wrong
        if step <= 0:
            return right + wrong > limit
        wrong += step
        weight = i / (r - i)
        right += weight * step
        if right + wrong > limit:
            return True
        if (v - i) % LOOK_AHEAD == 0 and _is_hopeless(
            least_errors, right, wrong, step, weight, i, limit
        ):
            return False
    return False


def _is_hopeless(
    least_errors: Callable[[float], float],
    right: float,
    wrong: float,
    step: float,
    weight: float,
    steps: int,
    limit: float,
) -> bool:
    """Whether the remaining ``steps`` are too few and too small to pass ``limit``: the weights fall
    and ``least_errors`` is convex, so if the slope times the weight is at most 1 over their range,
    no step is larger than the previous one.
    """
    end = right + steps * weight * step
    if end + wrong + steps * step > limit:
        return False
    ahead = max(end - right, 1e-9 * end)
    return weight * (least_errors(end + ahead) - least_errors(end)) <= ahead


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
    "steinke": Method(
        ("r_fixed", "iid_bits"),
        "valid under any dependence between bits, for (epsilon, delta)-DP of any family",
        steinke,
        FAMILY_FREE=True,
    ),
    "mahloujifar": Method(
        ("family", "r_fixed", "iid_bits"),
        "valid under any dependence between bits, for f-DP of this family",
        mahloujifar,
        rejects=rejects,
    ),
}
