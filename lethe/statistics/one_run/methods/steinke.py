"""The audit of Steinke, Nasr and Jagielski (2023), valid under any dependence between the bits' channels.

With v right guesses among r and q = 1 / (1 + e^-epsilon), their Theorem 5.2 states
P <= P(X >= v) + 2 n delta max over 1 <= i <= v of P(v - i <= X < v) / i, X ~ Binomial(r, q).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from lethe.statistics.one_run.binomial import log_cdf, log_pmf
from lethe.statistics.one_run.counts import Counts

ASSUMES = ("r_fixed", "iid_bits")
NOTE = "valid under any dependence between bits, for (epsilon, delta)-DP of any family"
FAMILY_FREE = True
CONSERVATIVE = True
STRONGEST = 600.0


def log_p_value(counts: Counts, epsilon: float, delta: float) -> float:
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
