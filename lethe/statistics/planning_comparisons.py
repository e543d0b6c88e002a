"""Answers that a comparison of two sides takes to see a difference."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtri
from scipy.stats import binom

from lethe.errors import BadValue
from lethe.statistics.checks import check_alpha, check_count
from lethe.statistics.many_prompts import binary_p_value

MOST = 1 << 17  # answers
POINTS = 257  # common leak probabilities at which a difference must be refuted, uniform in the angle
COUNTS = 128
TAIL = 1e-6  # probability of the counts that are left out on each end


def answers_to_see(leak: float, difference: float, power: float, alpha: float, prompts: int, apart: bool) -> int:
    """Answers to each question of both sides after which `mean_difference.difference` shows a rise, for 0/1 scores.

    Parameters
    ----------
    leak, difference
        The leak probability of side a, and how much larger that of side b is.
    power
        The wanted probability that the difference is shown.
    alpha, prompts
        Error probability of a list of differences, and the number of questions on it; the first entry of the list of rises
        takes alpha / (2 prompts).
    apart
        Whether the sides have seeds of their own.

    Examples
    --------
    >>> answers_to_see(0.0, 0.1, power=0.8, alpha=0.05, prompts=1, apart=True)
    90
    """
    check_alpha(alpha)
    check_count("prompts", prompts)
    for name, value, legal in (
        ("leak", leak, 0 <= leak < 1),
        ("difference", difference, 0 < difference <= 1 - leak),
        ("power", power, 0 < power < 1),
    ):
        if not legal:
            raise BadValue(name, value, "a probability, leak + difference at most 1, and power below 1")
    level = alpha / 2 / prompts
    low, high = 1, 8
    while high < MOST and chance(high, leak, difference, level, apart) < power:
        low, high = high, 2 * high
    if high >= MOST:
        raise BadValue("difference", difference, f"large enough to be seen with {MOST:,} answers")
    while high - low > max(1, high // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if chance(middle, leak, difference, level, apart) >= power else (middle, high)
    return high


def chance(n: int, leak: float, difference: float, level: float, apart: bool) -> float:
    """The probability that n answers on each side show the rise at ``level``, one-sided."""
    means = np.square(np.sin(np.linspace(0, math.pi / 2, POINTS)))
    (first, chances), (second, others) = (_counts(n, p) for p in (leak, leak + difference))
    at_least = np.array([binary_p_value(count, n, means) for count in first])
    at_most = np.array([binary_p_value(n - count, n, 1 - means) for count in second])
    if apart:
        goal = -float(chdtri(4, level)) / 2
        with np.errstate(divide="ignore"):
            logs = np.log(at_least)[:, None] + np.log(at_most)[None]
        shown = logs.max(axis=2) <= goal
    else:
        shown = np.minimum(at_least[:, None], at_most[None]).max(axis=2) <= level / 2
    return float((chances[:, None] * others)[shown].sum())


def _counts(n: int, p: float) -> tuple[np.ndarray, np.ndarray]:
    """The likely counts, at most `COUNTS` of them, each with the probability of the counts that it stands for."""
    low, high = (int(end) for end in binom.ppf([TAIL, 1 - TAIL], n, p))
    ends = np.unique(np.linspace(low - 1, high, min(COUNTS, high - low + 1) + 1).astype(int))
    return (ends[1:] + ends[:-1] + 1) // 2, np.diff(binom.cdf(ends, n, p))
