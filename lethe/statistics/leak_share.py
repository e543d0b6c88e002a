"""The mean of P(leak) over questions, by exact bounds or plain samples. The choice precedes the draws that count.

The code never computes both intervals and takes the better one, because that one would miss more often than either. The
choice needs only the exactly known masses, the rate of the sampled rest and the number of plain answers. All of these are
fixed before the first draw that counts, so the chosen interval keeps its level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.answer_tree import (
    EXACTLY,
    Masses,
    Remainder,
    Rounding,
    poisson_lower,
    poisson_upper,
    pooled_leak,
)
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.comparison import Interval

METHOD = "answer trees, Poisson sample of the rest"


def exact_is_sharper(questions: Sequence[Masses], rho: float, n: int, alpha: float) -> bool:
    """Whether the exact mean is expected to be narrower than that of ``n`` plain answers to each question.

    The function compares the widths at the expected counts, assuming that the unexplored answers of a question leak as often
    as the explored ones. If this guess is wrong, the chosen interval may be wider than the other one, but it stays valid.

    Parameters
    ----------
    questions
        The exactly known masses of each question, before anything was sampled.
    rho
        The rate of the sampled rest. At 0 nothing is sampled, so the exact mean has no useful upper end.
    n
        The plain answers per question.
    alpha
        The level of the widths that are compared.

    Examples
    --------
    >>> known, unknown = Masses((0.1,), (0.8,)), Masses((0.0,), (0.0,))
    >>> exact_is_sharper([known], rho=500, n=1024, alpha=0.01), exact_is_sharper([unknown], 500, 1024, 0.01)
    (True, False)
    """
    if n < 1 or not questions:
        raise BadValue("n", n, "a whole number from 1, with at least one question")
    if not rho:
        return False
    leak, clean = (np.array([getattr(masses, name) for masses in questions]) for name in ("leak", "clean"))
    known = leak + clean
    guess = np.where(known > 0, np.maximum(0, 1 - known) * leak / np.maximum(known, np.finfo(float).tiny), 0.0)
    m, drawn = len(questions), n * len(questions)
    left = rho * float(guess.sum())
    exact = float(poisson_upper(left, alpha) - poisson_lower(left, alpha)) / (rho * m)
    hits = min(drawn, round(n * float((leak + guess).sum())))
    plain = float(binary_upper(hits, drawn, alpha) - binary_lower(hits, drawn, alpha))
    return exact < plain


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


def silent_upper(rho: float, questions: int, alpha: float) -> float:
    """The upper end of the mean if nothing leaks: the best that the rate allows.

    Parameters
    ----------
    rho
        The rate of the sample.
    questions
        The number of questions.
    alpha
        One-sided error probability.
    """
    return float(poisson_upper(0, alpha)) / (rho * questions)
