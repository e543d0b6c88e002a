"""Methods that hold under any dependence between the bits' channels: steinke and mahloujifar.

Steinke, Nasr and Jagielski (2023): with v right guesses among r and q = 1 / (1 + e^-epsilon), Theorem 5.2 states
P <= P(X >= v) + 2 n delta max over 1 <= i <= v of P(v - i <= X < v) / i, X ~ Binomial(r, q).

Mahloujifar, Melis and Chaudhuri (2024): suppose P(U <= u) = tau. In runs with at least v right guesses, the mass per bit is
R = tau v / n for right guesses and H = tau (r - v) / n for wrong guesses. f-DP of every bit requires more wrong guesses, so
runs with one right guess fewer must supply them, and so on down to runs without a right guess. If more mass than the released
r / n is needed, tau is impossible. The recursion attains the maximum of the underlying linear program (the tests solve it).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from lethe.statistics.one_run.channel import Channel
from lethe.statistics.one_run.counts import Counts
from lethe.statistics.one_run.integral import log_cdf, log_pmf
from lethe.statistics.one_run.methods import Method

SMALLEST_LOG_TAU = -700.0
LOOK_AHEAD = 64  # steps between two checks of whether the recursion can still reach r / n


def steinke(counts: Counts, epsilon: float, delta: float) -> float:
    """ln of the bound P of Theorem 5.2 at the observed number of right guesses."""
    n, r, v = counts.n, counts.r, counts.correct
    if v == 0:
        return 0.0
    wrong = special.expit(-epsilon)
    log_tail = float(
        log_cdf(counts.errors, r, wrong)
    )  # at least v right guesses means at most r - v wrong guesses
    if delta == 0 or not math.isfinite(epsilon):
        return log_tail
    # Forty standard deviations from its mean, X has negligible mass: intervals farther above are empty, and longer
    # intervals below only divide by a larger i.
    mean, reach = r * (1 - wrong), 40 * math.sqrt(r * wrong * (1 - wrong)) + 40
    below = np.arange(min(v - 1, math.ceil(mean + reach)), max(0, math.floor(min(v, mean) - reach)) - 1, -1)
    mass = np.cumsum(np.exp(log_pmf(r - below, r, wrong)))
    extra = 2 * n * delta * float(np.max(mass / (v - below)))
    return min(0.0, float(np.logaddexp(log_tail, math.log(extra) if extra > 0 else -math.inf)))


def mahloujifar(counts: Counts, channel: Channel) -> float:
    """ln of the smallest level at which the null is rejected, found by bisection because the recursion takes a level."""
    if not rejects(counts, channel, 0.0):
        return 0.0
    low, high = SMALLEST_LOG_TAU, 0.0
    if rejects(counts, channel, low):
        return low
    while high - low > 1e-12 * max(1.0, -high):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if rejects(counts, channel, middle):
            high = middle
        else:
            low = middle
    return high


def rejects(counts: Counts, channel: Channel, log_tau: float) -> bool:
    """Whether P(U <= errors) cannot be as large as e^log_tau."""
    n, r, v = counts.n, counts.r, counts.correct
    least_errors, limit = channel.least_errors, r / n
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
        if (v - i) % LOOK_AHEAD == 0 and _is_hopeless(least_errors, right, wrong, step, weight, i, limit):
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
    """Whether the remaining steps are too few and too small to pass ``limit``.

    The weights fall and ``least_errors`` is convex. If the slope times the weight is at most 1 over the range of ``steps``
    further steps of the present size, no step can be larger than the previous one.
    """
    end = right + steps * weight * step
    if end + wrong + steps * step > limit:
        return False
    ahead = max(end - right, 1e-9 * end)
    return weight * (least_errors(end + ahead) - least_errors(end)) <= ahead


MEMBERS = {
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
