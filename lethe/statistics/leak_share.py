"""The mean of P(leak) over questions by exact bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lethe.errors import BadValue
from lethe.statistics.answer_tree import (
    EXACTLY,
    Masses,
    Remainder,
    Rounding,
    pooled_leak,
)
from lethe.statistics.comparison import Interval

METHOD = "answer trees, Poisson sample of the rest"


def mean_leak_interval(
    questions: Sequence[tuple[Masses, Remainder]],
    lowers: Sequence[float],
    alpha: float,
    rounding: Rounding = EXACTLY,
) -> Interval:
    """The mean of P(leak) over questions that share one rate, both ends together at ``alpha``.

    Each sampled end takes alpha / 2. The larger of the certain and the sampled lower end costs nothing.

    Assumption: the computed next-token probabilities are exact up to the allowance, and the rest is an independent
    Poisson sample at a rate that was fixed before it was drawn. Source: Garwood (1936), "Fiducial limits for the
    Poisson distribution".

    Parameters
    ----------
    questions
        The explored masses and the sample of each question.
    lowers
        The certain lower end of each question.
    alpha
        Error probability of the two ends together.
    rounding
        The largest error of the masses.

    Raises
    ------
    BadValue
        If the lengths differ, or the questions share no rate above 0.
    """
    if len(lowers) != len(questions):
        raise BadValue("lowers", len(lowers), f"one for each of the {len(questions)} questions")
    pooled = pooled_leak(questions, alpha / 2, rounding)
    m, rho = len(questions), questions[0][1].rho
    seen = math.fsum(masses.leak + remainder.leaks / rho for masses, remainder in questions) / m
    lower = min(pooled.upper, max(pooled.lower_sampled, math.fsum(lowers) / m))
    return Interval(
        value=min(pooled.upper, max(lower, seen)),
        lower=lower,
        upper=pooled.upper,
        n=sum(remainder.sampled for _, remainder in questions),
        alpha=alpha,
        method=METHOD,
        assumes=pooled.assumes,
    )
