"""False positive and false negative rates from independent guesses (Nasr et al. 2023).

Each rate gets a one-sided Clopper-Pearson bound at half the level, so both hold together. Source: "Tight Privacy Audit
in One Run", equation 6.
"""

from __future__ import annotations

import math

from scipy import special

from lethe.errors import BadValue
from lethe.statistics.one_run.counts import Counts

ASSUMES = ("product_channel",)
NOTE = "for independent guesses that are all released; bounds (epsilon, delta)-DP for any family"
FAMILY_FREE = True
CONSERVATIVE = True
STRONGEST = 600.0
SMALLEST_LOG_LEVEL = -700.0


def refusal(counts: Counts) -> BadValue | None:
    """The error for counts without separate false positives, or for filtered guesses; None if the method applies."""
    if counts.negatives is None:
        return BadValue(
            "guesses",
            "counts only",
            "a file of guesses for the method clopper-pearson",
            "The method needs separate counts of false positives and false negatives.",
        )
    if counts.r != counts.n:
        return BadValue(
            "r", counts.r, f"n = {counts.n} for the method clopper-pearson", "Filtering makes guesses dependent."
        )
    return None


def log_p_value(counts: Counts, epsilon: float, delta: float) -> float:
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
    """Equation 6 at confidence 1 - ``alpha``; 0 where the equation is vacuous.

    Parameters
    ----------
    counts
        The counts of the run, with every guess released.
    delta
        In [0, 1).
    alpha
        Error probability; each of the two rates takes half.
    """
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
