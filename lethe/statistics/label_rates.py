"""Bounds of leak probabilities from a person's labels alone: no assumption about any judge.

A person labels the distinct answers in a set S, chosen on other draws of the run and fixed before anyone looks at the n
counted draws. On the counted draws P(in S and a leak) and P(not in S) are binomial shares. Random draws of the rest are
labelled too, and p = P(in S and a leak) + P(not in S) P(leak | not in S). A judge may order what is labelled, but enters no
bound: the labels of its calibration alone are nearly always narrower than a bound that carries the judge's error.

Two shortcuts are not valid. A set S chosen on the counted draws holds too much of their mass. Labels of distinct texts are no
random draws; the rates here are per draw.
"""

from __future__ import annotations

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.checks import check_alpha
from lethe.statistics.counts import pooled_bounds, rate_bounds

ASSUMES = (
    "independent draws within each prompt; a person's label is the truth; the labelled answers were chosen on other "
    "draws"
)
WITH_REST = f"{ASSUMES}, or at random from the rest"
AT_RANDOM = (
    "a person's label is the truth; each labelled answer is a draw of the run chosen at random, a question uniformly and "
    "then a draw of it, without sight of text or verdict"
)
METHOD = "Clopper-Pearson on the labelled leaks, the rest counted against the claim"
METHOD_REST = (
    "the better of two bounds: Clopper-Pearson on the labelled leaks, the rest counted against the claim; and on the "
    "labelled leaks, the rest, and the labelled draws of the rest; alpha / 4 each"
)
METHOD_AT_RANDOM = "Clopper-Pearson on the labels"


def labelled_rates(
    leaks: np.ndarray, rest: np.ndarray, n: np.ndarray, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends (lower, upper) of each question's leak probability; the rest counts against the claim.

    Parameters
    ----------
    leaks, rest, n : arrays of shape (questions,)
        Counted draws whose text a person labelled a leak, counted draws whose text nobody labelled, and all counted draws.
    alpha : float
        Error probability of each side, above 0 and up to 0.5.

    Notes
    -----
    Holds for any part of S that is labelled, whoever chose that part: the ends only improve with a larger S.
    """
    check_alpha(alpha)
    if (np.asarray(leaks) + rest > n).any():
        raise BadValue("leaks and rest", float(np.max(np.asarray(leaks) + rest)), "at most n together")
    return rate_bounds(leaks, n, alpha)[0], rate_bounds(np.asarray(leaks) + rest, n, alpha)[1]


def labelled_average(
    leaks: np.ndarray, rest: np.ndarray, n: np.ndarray, of_rest: tuple[int, int] | None, alpha: float
) -> tuple[float, float]:
    """Ends (lower, upper) of the average leak probability over questions with equally many counted draws.

    Parameters
    ----------
    leaks, rest, n, alpha
        As in `labelled_rates`; alpha at most 1/4.
    of_rest : pair of int, optional
        Labelled leaks among the random draws of the rest, and these draws (0 until all are labelled). None where no such
        draws were planned, which gives all of alpha to the first bound.

    Examples
    --------
    >>> ends = labelled_average(np.array([5, 0]), np.array([40, 60]), np.array([500, 500]), (1, 50), 0.05)
    >>> [round(end, 4) for end in ends]
    [0.0014, 0.0276]
    """
    part = alpha if of_rest is None else alpha / 4
    own_lower, own_upper = pooled_bounds(leaks, n, part)
    lower, upper = own_lower, pooled_bounds(np.asarray(leaks) + rest, n, part)[1]
    if of_rest and of_rest[1]:
        rest_lower, rest_upper = pooled_bounds(rest, n, part)
        rate_lower, rate_upper = pooled_bounds([of_rest[0], 0], [of_rest[1], 0], part)
        lower = np.maximum(lower, own_lower + rest_lower * rate_lower)
        upper = np.minimum(upper, own_upper + rest_upper * rate_upper)
    return float(lower[0]), float(upper[0])


def random_labels(leaks: int, n: int, alpha: float) -> tuple[float, float]:
    """Ends (lower, upper) of the average leak probability from labels of ``n`` random draws of the run.

    Parameters
    ----------
    leaks, n
        Labelled leaks and labelled draws.
    alpha
        Error probability of each side, at most 1/4.

    Notes
    -----
    The ends also hold where the questions were drawn without replacement (see `lethe.statistics.counts.pooled_bounds`).

    Examples
    --------
    >>> [round(end, 4) for end in random_labels(4, 200, 0.05)]
    [0.0069, 0.0452]
    """
    check_alpha(alpha)
    lower, upper = pooled_bounds([leaks, 0], [n, 0], alpha)
    return float(lower[0]), float(upper[0])
