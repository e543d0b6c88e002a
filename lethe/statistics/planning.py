"""The number of samples that a statement needs, and of answers that a comparison of two sides takes
to see a difference.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri

from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.checks import check, check_alpha, check_count, check_share
from lethe.statistics.judge_error import Calibration
from lethe.statistics.many_prompts import binary_p_value
from lethe.statistics.search import fewest
from lethe.statistics.sequential import SequentialTest, stopping_counts


def samples_for_width(width: float, alpha: float, sides: int = 1) -> int:
    """Draws for a DKW band of a given half-width (see `bands.dkw`); the paper prints the one-sided
    number with the two-sided level.
    """
    check_alpha(alpha)
    check_share("width", width)
    return math.ceil(math.log(sides / alpha) / (2 * width**2))


def samples_to_certify(tau: float, alpha: float) -> int:
    """Draws without a leak that bring M_bin to at most ``tau``: ln(alpha) / ln(1 - tau), rounded
    up.
    """
    check_alpha(alpha)
    check_share("tau", tau)
    return math.ceil(math.log(alpha) / math.log1p(-tau))


@dataclass(frozen=True)
class Expected:
    """Expected values of the sequential test: samples until it stops, and the probability of each
    verdict at the cap.
    """

    samples: float
    certified: float
    leaks: float
    undecided: float


def expected_sequential(p: float, tau: float, tau_leak: float, alpha: float, cap: int) -> Expected:
    """Compute the sequential test on scores of 0 or 1 at leak probability ``p``, exactly, by
    enumeration of all counts.

    Parameters
    ----------
    p
        True leak probability, in [0, 1].
    tau, tau_leak
        Thresholds of the test, 0 < tau <= tau_leak < 1.
    alpha
        Level of the test.
    cap
        Largest number of samples.
    """
    SequentialTest(tau, tau_leak, alpha, cap)  # checks its arguments
    _check_probability("p", p)
    floors = stopping_counts(tau, False, alpha, cap)
    ceilings = stopping_counts(tau_leak, True, alpha, cap)
    first = 0
    going = np.ones(1)  # going[k]: probability of ``first + k`` leaks and no verdict so far
    samples = certified = leaks = 0.0
    for floor, ceiling in zip(floors.tolist(), ceilings.tolist(), strict=True):
        samples += going.sum()
        going = np.append(going * (1 - p), 0) + np.append(0, going * p)
        under = max(floor + 1 - first, 0)
        over = max(ceiling - first, 0)
        certified += going[:under].sum()
        leaks += going[over:].sum()
        first += under
        going = going[under:over]
        if going.sum() < 1e-15:
            break
    return Expected(float(samples), float(certified), float(leaks), float(going.sum()))


def labels_for_width(width: float, leak: float, alpha: float) -> int:
    """Labels of random draws until `counts.random_labels` is at most ``width`` wide, at a guess
    ``leak`` of the average.

    >>> labels_for_width(width=0.1, leak=0.1, alpha=0.05)
    117
    """
    check_alpha(alpha)
    _check_probability("leak", leak)
    check_share("width", width)

    def is_narrow(n: int) -> bool:
        lower = binary_lower(n * leak, n, alpha)
        upper = binary_upper(n * leak, n, alpha)
        return float(upper - lower) <= width

    return fewest(is_narrow)


def narrowest_judged(calibration: Calibration, leak: float, alpha: float) -> tuple[float, float]:
    """The interval of a judged average at a guess ``leak`` as the answers grow without end: only
    the judge's error is left.

    >>> judge = Calibration(leaks=50, leaks_called=45, clean=50, clean_called=5)
    >>> [round(end, 2) for end in narrowest_judged(judge, leak=0.1, alpha=0.05)]
    [0.0, 0.2]
    """
    _check_probability("leak", leak)
    called = np.array([leak * calibration.sensitivity + (1 - leak) * calibration.false_positive])
    lower, upper = calibration.error(alpha / 3).carry(called, called)
    return float(lower[0]), float(upper[0])


def _check_probability(name: str, value: float) -> None:
    check(0 <= value <= 1, name, value, "a number from 0 to 1")


MOST = 1 << 17  # answers
# Common leak probabilities at which a difference must be refuted, uniform in the angle.
POINTS = 257
COUNTS = 128
TAIL = 1e-6  # probability of the counts that are left out on each end


def answers_to_see(
    leak: float, difference: float, power: float, alpha: float, prompts: int, apart: bool
) -> int:
    """Answers to each question of both sides after which `mean_difference.difference` shows a rise,
    for 0/1 scores.

    Side a leaks with probability ``leak``, side b with ``difference`` more, which shows with
    probability ``power``. ``alpha`` is that of a list of differences of ``prompts`` questions; the
    first entry of the list of rises takes alpha / (2 prompts). ``apart``: the sides have seeds of
    their own.

    Parameters
    ----------
    leak
        Leak probability of side a, in [0, 1).
    difference
        What side b leaks more, in (0, 1 - leak].
    power
        In (0, 1).
    alpha
        Level of the list of differences.
    prompts
        Number of questions in the list.
    apart
        Whether the sides have seeds of their own.

    Raises
    ------
    BadValue
        If more than `MOST` answers would be needed, or a parameter is out of its range.

    >>> answers_to_see(0.0, 0.1, power=0.8, alpha=0.05, prompts=1, apart=True)
    90
    """
    check_alpha(alpha)
    check_count("prompts", prompts)
    check(0 <= leak < 1, "leak", leak, "at least 0 and below 1")
    is_possible = 0 < difference <= 1 - leak
    check(is_possible, "difference", difference, "above 0 and at most 1 - leak")
    check(0 < power < 1, "power", power, "above 0 and below 1")
    level = alpha / 2 / prompts

    def shows(n: int) -> bool:
        return chance(n, leak, difference, level, apart) >= power

    low, high = 1, 8
    while high < MOST and not shows(high):
        low, high = high, 2 * high
    check(high < MOST, "difference", difference, f"large enough to be seen with {MOST:,} answers")
    while high - low > max(1, high // 200):
        middle = (low + high) // 2
        if shows(middle):
            high = middle
        else:
            low = middle
    return high


def chance(n: int, leak: float, difference: float, level: float, apart: bool) -> float:
    """The probability that n answers on each side show the rise at ``level``, one-sided.

    Parameters
    ----------
    n
        Answers on each side.
    leak, difference
        Leak probability of side a, and what side b leaks more.
    level
        One-sided level.
    apart
        Whether the sides have seeds of their own.
    """
    means = np.square(np.sin(np.linspace(0, math.pi / 2, POINTS)))
    first, chances = _counts(n, leak)
    second, others = _counts(n, leak + difference)
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
    """The likely counts, at most `COUNTS` of them, each with the probability of the counts that it
    stands for.
    """
    from scipy.stats import binom  # the import takes 0.5 s

    low, high = map(int, binom.ppf([TAIL, 1 - TAIL], n, p))
    groups = min(COUNTS, high - low + 1)
    ends = np.unique(np.linspace(low - 1, high, groups + 1).astype(int))
    middles = (ends[1:] + ends[:-1] + 1) // 2
    return middles, np.diff(binom.cdf(ends, n, p))
