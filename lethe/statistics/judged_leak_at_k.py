"""Leak@k including the judge's error: bounds of the true leak probability, transformed to k answers.

All questions share the calibration: sensitivity and false positive rate take alpha / 3 each, once for all questions.
The share of verdicts takes the remaining alpha / 3, which `lethe.statistics.leak_at_k` receives as its alpha. Each side
of a band holds by itself with probability 1 - alpha.

The estimates are 1 - (1 - p)^k at Rogan and Gladen's estimate of p. They are biased: an unbiased estimate from subsets
of the judged answers would include the judge's errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from lethe.statistics.judge_error import METHOD, Calibration, judged_rates, shared_error
from lethe.statistics.leak_at_k import (
    QUERIES,
    LeakAtK,
    at_least_once,
    check_queries,
    mean_over_questions,
    worst_question,
)


def judged_leak_at_k(
    called: ArrayLike,
    n: ArrayLike,
    calibration: Calibration,
    alpha: float,
    ks: Sequence[int] = QUERIES,
    missing: ArrayLike = 0,
) -> LeakAtK:
    """Leak@k of each question by itself.

    Parameters
    ----------
    called, n, calibration, alpha, missing
        As in `lethe.statistics.judge_error.judged_rates`.
    ks : sequence of int
        Numbers of answers, each at least 1.

    Returns
    -------
    LeakAtK
        Tables of shape (questions, K).

    Raises
    ------
    BadValue
        If a count, alpha or k lies outside its range.

    Examples
    --------
    >>> judge = Calibration(leaks=200, leaks_called=200, clean=2000, clean_called=0)
    >>> judged_leak_at_k([0], 1000, judge, alpha=0.05, ks=[1, 10]).upper.round(3).tolist()
    [[0.004, 0.041]]
    """
    k = check_queries(ks)
    rates = judged_rates(called, n, calibration, alpha, missing)
    return LeakAtK(
        k=k,
        estimate=at_least_once(rates.estimate, k),
        lower=at_least_once(rates.lower, k),
        upper=at_least_once(rates.upper, k),
        alpha=alpha,
        questions=rates.questions,
        covers="each question by itself, all k at once, each side by itself",
        method=f"{METHOD}, carried to k",
        assumes=rates.assumes,
    )


def judged_worst_question(
    called: ArrayLike,
    n: ArrayLike,
    calibration: Calibration,
    alpha: float,
    ks: Sequence[int] = QUERIES,
    missing: ArrayLike = 0,
) -> tuple[int, LeakAtK]:
    """Leak@k of the question that leaks most, and the index of the question with the largest upper bound.

    Parameters and errors are those of `judged_leak_at_k`, except that ``called`` must not contain NaN.
    `lethe.statistics.leak_at_k.worst_question` documents the scope of each side.

    Returns
    -------
    int, LeakAtK
        Tables of shape (K,).

    Examples
    --------
    >>> judge = Calibration(leaks=200, leaks_called=190, clean=200, clean_called=10)
    >>> place, found = judged_worst_question([10, 600], 1000, judge, alpha=0.05, ks=[1, 5])
    >>> place, found.lower.round(3).tolist(), found.upper.round(3).tolist()
    (1, [0.53, 0.977], [0.691, 0.997])
    """
    place, found = worst_question(called, n, alpha / 3, ks, missing, shared_error(calibration, alpha).carry)
    return place, _restated(found, judged_leak_at_k(called, n, calibration, alpha, ks, missing), np.fmax.reduce)


def judged_mean_over_questions(
    called: ArrayLike,
    n: ArrayLike,
    calibration: Calibration,
    alpha: float,
    ks: Sequence[int] = QUERIES,
    missing: ArrayLike = 0,
) -> LeakAtK:
    """The mean of leak@k over the questions.

    Parameters and errors are those of `judged_worst_question`. `lethe.statistics.leak_at_k.mean_over_questions`
    documents the scope of each side.

    Returns
    -------
    LeakAtK
        Tables of shape (K,).

    Examples
    --------
    >>> judge = Calibration(leaks=200, leaks_called=190, clean=200, clean_called=10)
    >>> judged_mean_over_questions([10, 600], 1000, judge, alpha=0.05, ks=[1, 5]).upper.round(3).tolist()
    [0.348, 0.499]
    """
    found = mean_over_questions(called, n, alpha / 3, ks, missing, shared_error(calibration, alpha).carry)
    return _restated(found, judged_leak_at_k(called, n, calibration, alpha, ks, missing), np.mean)


def _restated(found: LeakAtK, each: LeakAtK, over: Callable[..., np.ndarray]) -> LeakAtK:
    """Restate a result at the verdicts' alpha / 3 at the alpha of ``each``, which includes the judge's error.

    ``over`` combines the estimates of ``each`` question into one estimate.
    """
    return replace(
        found,
        estimate=over(each.estimate, axis=0),
        alpha=each.alpha,
        method=f"{METHOD}; {found.method}",
        assumes=f"{each.assumes}; {found.assumes}",
    )
