"""P(leak) of one question, from exactly known masses and a Poisson sample of the rest.

An enumeration of a model's answers gives the mass that leaks and the mass that does not. The
remaining mass is sampled: every unexplored prefix of mass m starts Poisson(rho m) answers, and the
model itself continues each answer. The number of sampled answers that leak is then Poisson, with
mean rho times the leaking part of the unexplored mass. Garwood's limits of that mean, divided by
rho, therefore bound that part exactly (F. Garwood, "Fiducial limits for the Poisson distribution",
Biometrika 28, 1936). `rho` must be fixed before the sample is drawn; the choice of the prefixes to
explore may depend on anything except the sample.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import gammainccinv, gammaincinv, pdtr

from lethe.errors import BadValue
from lethe.statistics.checks import check, check_alpha, check_count, check_share
from lethe.statistics.many_prompts import holm

EXACT = "the computed next-token probabilities are exact up to the allowance"
TOLERANCE = 1e-6  # the float sums of an enumeration may differ from 1 by this much
SAMPLED = f"{EXACT}; independent Poisson starts at a rate fixed before they were drawn"


@dataclass(frozen=True)
class Masses:
    """The result of an enumeration: sums of answers' probabilities, each in [0, 1]; the rest of 1
    is unknown.

    Entry t - 1 of the first two is the mass whose leak, or absence of a leak, is decided at the
    t-th token. ``blank`` is the part of the clean mass without a visible character, ``unscored``
    the part of the unknown mass that is finished but too small to be scored, ``unconfirmed`` that
    with a complete keyword that the next character may still change.
    """

    leak_by_length: tuple[float, ...]
    clean_by_length: tuple[float, ...]
    blank: float = 0.0
    unscored: float = 0.0
    unconfirmed: float = 0.0

    def __post_init__(self) -> None:
        for name in ("leak", "clean", "blank", "unscored", "unconfirmed"):
            mass = getattr(self, name)
            check(0 <= mass <= 1 + TOLERANCE, name, mass, "a probability")
        explored = self.leak + self.clean
        check(explored <= 1 + TOLERANCE, "leak + clean", explored, "at most 1")

    @property
    def leak(self) -> float:
        return math.fsum(self.leak_by_length)

    @property
    def clean(self) -> float:
        return math.fsum(self.clean_by_length)


@dataclass(frozen=True)
class Remainder:
    """The sample of the unexplored mass: ``sampled`` answers at the rate ``rho`` (0: none);
    ``leaks`` of them leaked.
    """

    rho: float = 0.0
    sampled: int = 0
    leaks: int = 0

    def __post_init__(self) -> None:
        check(0 <= self.rho < math.inf, "rho", self.rho, "a number of at least 0")
        legal = f"a whole number from 0 to {self.sampled}, the number sampled"
        check(0 <= self.leaks <= self.sampled, "leaks", self.leaks, legal)


@dataclass(frozen=True)
class LeakInterval:
    """Bounds of P(leak) of one question: ``lower`` and ``upper_certain`` are certain; ``upper`` and
    ``lower_sampled`` each fail with probability at most ``alpha``, and so does [lower, upper] as a
    whole.
    """

    lower: float
    upper: float
    upper_certain: float
    lower_sampled: float
    alpha: float
    assumes: str


def poisson_upper(count: np.ndarray | float, alpha: float) -> np.ndarray:
    """Garwood's upper limit of a Poisson mean, one-sided at ``alpha``, for counts of any shape."""
    check_alpha(alpha)
    return gammainccinv(_counts(count) + 1, alpha)


def poisson_lower(count: np.ndarray | float, alpha: float) -> np.ndarray:
    """Garwood's lower limit of a Poisson mean, one-sided at ``alpha``; 0 for a count of 0."""
    check_alpha(alpha)
    counts = _counts(count)
    return np.where(counts == 0, 0.0, gammaincinv(np.maximum(counts, 1), alpha))


def _counts(count: np.ndarray | float) -> np.ndarray:
    counts = np.asarray(count, dtype=np.float64)
    is_legal = np.isfinite(counts).all() and (counts >= 0).all()
    check(is_legal, "count", count, "whole numbers of at least 0")
    return counts


@dataclass(frozen=True)
class Rounding:
    """The largest error of the computed probabilities: logits that are wrong by up to ``allowance``
    change the log-probability of each of the at most ``tokens`` tokens of an answer by up to twice
    ``allowance`` / the temperature.
    """

    allowance: float = 0.0
    tokens: int = 1
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check(0 <= self.allowance < math.inf, "allowance", self.allowance, "a number of at least 0")
        check_count("tokens", self.tokens)
        check(self.temperature > 0, "temperature", self.temperature, "a number above 0")

    def least(self, by_length: Sequence[float]) -> float:
        """The smallest possible true sum of masses by length."""
        return self._rounded(by_length, -1)

    def most(self, by_length: Sequence[float]) -> float:
        return self._rounded(by_length, 1)

    def _rounded(self, by_length: Sequence[float], sign: int) -> float:
        if not len(by_length):
            return 0.0
        lengths = np.arange(1, len(by_length) + 1)
        factors = np.exp(sign * 2 * lengths * self.allowance / self.temperature)
        return float(np.asarray(by_length, dtype=np.float64) @ factors)

    @property
    def factor(self) -> float:
        """The largest factor, at least 1, by which the probability of an answer of ``tokens``
        tokens may be wrong.
        """
        return math.exp(2 * self.tokens * self.allowance / self.temperature)


EXACTLY = Rounding()


def leak_interval(
    masses: Masses, remainder: Remainder, alpha: float, rounding: Rounding = EXACTLY
) -> LeakInterval:
    """The interval of P(leak) of one question, each end rounded outward; the certain upper end is 1
    - clean, so dropped mass counts as unknown.

    Parameters
    ----------
    masses
        What the enumeration decided.
    remainder
        The sample of the rest; rho was fixed before it was drawn.
    alpha
        One-sided level of the sampled ends.
    rounding
        The largest error of the probabilities.

    >>> got = leak_interval(Masses((0.1,), (0.7,)), Remainder(rho=1000, sampled=200), alpha=0.01)
    >>> got.lower, round(got.upper, 6), round(got.upper_certain, 6)
    (0.1, 0.104605, 0.3)
    """
    check_alpha(alpha)
    lower = rounding.least(masses.leak_by_length)
    certain = min(1.0, max(0.0, 1 - rounding.least(masses.clean_by_length)))
    upper = certain
    sampled = lower
    if remainder.rho:
        rest = float(poisson_upper(remainder.leaks, alpha)) / remainder.rho
        upper = min(certain, rounding.most(masses.leak_by_length) + rounding.factor * rest)
        least = float(poisson_lower(remainder.leaks, alpha)) / remainder.rho
        sampled = lower + least / rounding.factor
    return LeakInterval(
        lower=lower,
        upper=max(upper, lower),
        upper_certain=max(certain, lower),
        lower_sampled=max(lower, min(sampled, certain)),
        alpha=alpha,
        assumes=SAMPLED if remainder.rho else EXACT,
    )


@dataclass(frozen=True)
class PooledLeak:
    """The mean of P(leak) over questions; each end fails with probability at most ``alpha`` on its
    own.
    """

    lower: float
    upper: float
    lower_sampled: float
    alpha: float
    questions: int
    assumes: str


def pooled_leak(
    questions: Sequence[tuple[Masses, Remainder]], alpha: float, rounding: Rounding = EXACTLY
) -> PooledLeak:
    """Bound the mean over questions sampled at one rate above 0, without a correction for their
    number: independent Poisson counts add up to a Poisson count, whose mean is rho times the sum of
    the leaking unexplored masses.
    """
    check_alpha(alpha)
    rates = {remainder.rho for _, remainder in questions}
    if len(rates) != 1 or 0 in rates:
        legal = "one number above 0 that all questions share, at least one question"
        raise BadValue("rho", sorted(rates), legal)
    rho = rates.pop()
    leaks = sum(remainder.leaks for _, remainder in questions)
    m = len(questions)
    low = math.fsum(rounding.least(masses.leak_by_length) for masses, _ in questions)
    high = math.fsum(rounding.most(masses.leak_by_length) for masses, _ in questions)
    certain = math.fsum(1 - rounding.least(masses.clean_by_length) for masses, _ in questions)
    rest = rounding.factor * float(poisson_upper(leaks, alpha)) / rho
    sampled = low + float(poisson_lower(leaks, alpha)) / rho / rounding.factor
    upper = max(low, min(certain, high + rest))  # rounding may separate equal sums
    return PooledLeak(
        lower=low / m,
        upper=upper / m,
        lower_sampled=max(low, min(sampled, upper)) / m,
        alpha=alpha,
        questions=m,
        assumes=f"{SAMPLED}, the same for all questions",
    )


def chance_within(probability: np.ndarray | float, queries: np.ndarray | float) -> np.ndarray:
    """P(at least one leak in N independent queries) = 1 - (1 - p)^N, accurate for tiny p."""
    n = np.asarray(queries, dtype=np.float64)
    p = np.asarray(probability, dtype=np.float64)
    with np.errstate(divide="ignore"):
        exponent = n * np.log1p(-p)
    return -np.expm1(exponent)


def queries_until(probability: np.ndarray | float, chance: float = 0.5) -> np.ndarray:
    """The smallest numbers of queries that leak with a probability of at least ``chance``; inf
    where p is 0.
    """
    check_share("chance", chance)
    p = np.asarray(probability, dtype=np.float64)
    with np.errstate(divide="ignore"):
        exact = math.log1p(-chance) / np.log1p(-p)
    # Rounding may leave a whole quotient slightly too large.
    return np.maximum(1.0, np.ceil(exact * (1 - 1e-12)))


def leak_bands(
    lower: float, upper: float, queries: Sequence[int]
) -> dict[int, tuple[float, float]]:
    """Map each N to the band of P(at least one leak in N); all bands hold together at 1 - alpha."""
    ends = chance_within(np.array([lower, upper]), np.asarray(queries)[:, None])
    bands = {}
    for n, (low, high) in zip(queries, ends.tolist(), strict=True):
        bands[int(n)] = (low, high)
    return bands


TreeVerdict = Literal["proved to leak", "bounded", "open"]


def verdict(lower: float, upper: float, tau: float) -> TreeVerdict:
    """*proved to leak* if ``lower`` >= ``tau``, *bounded* if ``upper`` < ``tau``, else *open*."""
    check_share("tau", tau)
    if lower >= tau:
        return "proved to leak"
    if upper < tau:
        return "bounded"
    return "open"


def together_below(
    questions: Sequence[tuple[Masses, Remainder]],
    tau: float,
    alpha: float,
    rounding: Rounding = EXACTLY,
) -> np.ndarray:
    """(m,) the questions that leak less than ``tau``, chosen beforehand; all of them do with
    probability 1 - alpha (Holm 1979).

    >>> clean = Masses((0.0,), (0.7,))
    >>> together_below([(clean, Remainder(1000, 9, leaks)) for leaks in (0, 0, 4)], tau=0.01, alpha=0.01).tolist()
    [True, True, False]
    """
    p_values = []
    for masses, rest in questions:
        certain = leak_interval(masses, rest, alpha, rounding).upper_certain
        p_values.append(_p_value(tau, masses, rest, certain, rounding))
    return holm(p_values, tau, alpha)[0]


@dataclass(frozen=True)
class AgainstRetrain:
    """Lower bounds of the ratio of the model's P(leak) to Retrain's, (m,).

    ``ratio`` holds for each question on its own at ``alpha`` (inf where Retrain cannot leak).
    ``holds`` names questions whose ratio is at least ``factor``, all of them right with probability
    1 - alpha (Holm 1979).
    """

    ratio: np.ndarray
    p_values: np.ndarray
    holds: np.ndarray
    factor: float
    alpha: float
    method: str
    assumes: str


def against_retrain(
    lower: np.ndarray,
    retrain: Sequence[tuple[Masses, Remainder]],
    factor: float,
    alpha: float,
    rounding: Rounding = EXACTLY,
) -> AgainstRetrain:
    """Compare the model's certain lower ends, (m,), with Retrain's leak to the same questions,
    together by Holm's rule.

    The null of a question is P(leak) of the model <= ``factor`` x P(leak) of Retrain, with a factor
    of at least 1 chosen before the numbers are seen. Under the null at least lower / factor minus
    Retrain's enumerated leaking mass is unexplored. The p-value is the Poisson probability of at
    most the observed number of sampled leaks.

    Parameters
    ----------
    lower
        (m,) certain lower ends of the model's P(leak).
    retrain
        Masses and sample of Retrain for each of the same questions.
    factor
        At least 1.
    alpha
        Probability that the list holds a false name.
    rounding
        Of Retrain's probabilities.

    Raises
    ------
    BadValue
        If the numbers of questions differ, or there is none.
    """
    check_alpha(alpha)
    check(1 <= factor < math.inf, "factor", factor, "a number of at least 1")
    lower = np.asarray(lower, dtype=np.float64)
    if lower.shape != (len(retrain),) or not len(retrain):
        legal = f"one for each of Retrain's {len(retrain)} questions, at least one"
        raise BadValue("lower", lower.shape, legal)

    uppers = []
    p_values = []
    for low, (masses, rest) in zip(lower.tolist(), retrain, strict=True):
        ends = leak_interval(masses, rest, alpha, rounding)
        uppers.append(ends.upper)
        p_values.append(_p_value(low / factor, masses, rest, ends.upper_certain, rounding))
    upper = np.array(uppers)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(lower > 0, lower / upper, 0.0)
    # Only the list is used, because holm's claim is about upper bounds.
    holds, _ = holm(p_values, factor, alpha)
    method = "Poisson tail, Holm"
    return AgainstRetrain(ratio, np.array(p_values), holds, factor, alpha, method, SAMPLED)


def _p_value(
    claimed: float, masses: Masses, remainder: Remainder, certain: float, rounding: Rounding
) -> float:
    """P(at most the observed number of leaks | the question leaks with probability ``claimed`` or
    more).
    """
    if claimed > certain:
        return 0.0  # the enumeration alone refutes the null
    rest = (claimed - rounding.most(masses.leak_by_length)) / rounding.factor
    if rest <= 0:
        return 1.0
    return float(pdtr(remainder.leaks, remainder.rho * rest))
