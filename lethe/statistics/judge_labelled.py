"""Bounds of the leak probability if a person labelled most of the probability mass and a judge covers the rest.

A person labels the distinct answers in a set S. The set is chosen on other draws of the same run, and fixed before anyone
looks at the n counted draws. On the counted draws

- p1 = P(in S and a leak) is a binomial share with certain labels,
- r = P(not in S) is a binomial share, and so is q2 = P(not in S and called a leak by the judge),
- p2 = P(not in S and a leak) satisfies q2 = p2 se + (r - p2) fp, where se and fp are the judge's sensitivity and false
  positive rate on answers outside S.

The leak probability is p1 + p2. Proof of the upper bound: where se >= se_l, fp >= fp_l, r >= r_l and q2 <= q_u, and since
p2 >= 0 and r - p2 >= 0, q_u >= q2 >= p2 se_l + (r - p2) fp_l >= p2 (se_l - fp_l) + r_l fp_l. If se_l > fp_l, therefore
p2 <= (q_u - r_l fp_l) / (se_l - fp_l); otherwise nothing follows, and the bound is 1. Proof of the lower bound: where
se <= se_u, fp <= fp_u, r <= r_u and q2 >= q_l, q_l <= p2 (se_u - fp_u) + r_u fp_u. If se_u > fp_u, therefore
p2 >= (q_l - r_u fp_u) / (se_u - fp_u); otherwise p2 >= 0. Each side uses five one-sided Clopper-Pearson bounds at
alpha / 5, which hold together with probability 1 - alpha (union bound, so the shares may depend on each other).

`labelled_either` is for a run whose judge may turn out to be unmeasured: it takes the better of this bound and of the bound
by labels alone, at alpha / 2 each, which is fixed before a label is seen. The bound by labels alone counts the rest against
the claim. It can only improve with a larger S, so it holds for any part of S that is labelled, whoever chose that part.

Two shortcuts are not valid. A set S chosen on the counted draws holds too much of their mass. A judge that judges each text
once does not err independently on the copies of a text; the rates here are per draw, so copies need no independence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.checks import check_alpha
from lethe.statistics.judge_error import Calibration, JudgeError, judge_error
from lethe.statistics.leak_at_k import check_counts, rate_bounds

ASSUMES_LABELS = (
    "independent draws within each prompt; a person's label is the truth; the labelled answers were chosen on other "
    "draws"
)
ASSUMES = ASSUMES_LABELS + "; the judge errs on the rest as often as on the labelled answers of the rest"
METHOD_LABELS = "Clopper-Pearson on the labelled leaks, the rest counted against the claim"
METHOD = (
    "Clopper-Pearson on the labelled leaks, the rest, the verdicts on the rest, the sensitivity and the false positive rate, "
    "alpha / 5 each"
)
METHOD_EITHER = (
    f"the better of two bounds at alpha / 2 each: {METHOD_LABELS}; and {METHOD.replace('alpha / 5', 'alpha / 10')}"
)


@dataclass(frozen=True)
class LabelledRates:
    """Bounds of leak probabilities from labels and verdicts; arrays of shape (questions,).

    Each side of each question holds by itself with probability 1 - ``alpha``. ``mass`` is the measured share of the counted
    draws that a person's labels cover, without a guarantee. ``error`` bounds the judge's rates, each side at alpha / 5.
    """

    lower: np.ndarray
    upper: np.ndarray
    mass: np.ndarray
    error: JudgeError
    alpha: float
    assumes: str = ASSUMES
    method: str = METHOD


def labelled_rates(
    leaks: ArrayLike,
    rest: ArrayLike,
    called: ArrayLike,
    n: ArrayLike,
    calibration: Calibration | None,
    alpha: float,
    missing: ArrayLike = 0,
) -> LabelledRates:
    """Bound the leak probability of each question.

    Parameters
    ----------
    leaks : array of shape (questions,)
        Counted draws whose text a person labelled a leak.
    rest : array of shape (questions,)
        Counted draws whose text nobody labelled beforehand.
    called : array of shape (questions,)
        Draws of the rest that the judge calls a leak.
    n : int or array of shape (questions,)
        Counted draws; at least 1.
    calibration : Calibration or None
        The judge's verdicts against a person's labels on random draws outside S. None means that there is no judge: the rest
        counts as leaks in the upper bound and as clean in the lower bound.
    alpha : float
        Error probability of each side, above 0 and up to 0.5.
    missing : array of shape (questions,)
        Draws of the rest without a verdict. They count as leaks in the upper bound and as clean in the lower bound.

    Returns
    -------
    LabelledRates
        Arrays of shape (questions,).

    Raises
    ------
    BadValue
        If a count or alpha lies outside its range.

    Notes
    -----
    Assumes independent draws, a person's labels as the truth, S chosen on other draws, and calibration answers that are
    random draws outside S.

    Examples
    --------
    >>> judge = Calibration(leaks=40, leaks_called=38, clean=60, clean_called=3)
    >>> found = labelled_rates(leaks=[5], rest=[20], called=[2], n=512, calibration=judge, alpha=0.05)
    >>> found.lower.round(3).tolist(), found.upper.round(3).tolist(), found.mass.round(3).tolist()
    ([0.003], [0.046], [0.961])
    """
    check_alpha(alpha)
    counts, sizes, gone = (np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in (leaks, rest, missing))
    if (counts + sizes > np.asarray(n)).any():
        raise BadValue("leaks and rest", float((counts + sizes).max()), "at most n together")
    if (np.asarray(called) + gone > sizes).any():
        raise BadValue("called and missing", float((np.asarray(called) + gone).max()), "at most rest together")
    if calibration is None:
        low, _ = rate_bounds(*check_counts(counts, n, 0)[:2], alpha, 0)
        _, high = rate_bounds(*check_counts(counts + sizes, n, 0)[:2], alpha, 0)
        blind = JudgeError(sensitivity=(0.0, 1.0), false_positive=(0.0, 1.0), alpha=alpha)
        return LabelledRates(low, high, 1 - sizes / np.asarray(n), blind, alpha, ASSUMES_LABELS, METHOD_LABELS)
    level = alpha / 5
    own_low, own_high = rate_bounds(*check_counts(counts, n, 0)[:2], level, 0)
    rest_low, rest_high = rate_bounds(*check_counts(sizes, n, 0)[:2], level, 0)
    verdicts, drawn, absent = check_counts(called, n, gone)
    called_low, called_high = rate_bounds(verdicts, drawn, level, absent)
    error = judge_error(calibration, level)
    room_low = error.sensitivity[0] - error.false_positive[0]
    room_high = error.sensitivity[1] - error.false_positive[1]
    more = _share(called_high - rest_low * error.false_positive[0], room_low, useless=1.0)
    less = _share(called_low - rest_high * error.false_positive[1], room_high, useless=0.0)
    return LabelledRates(
        lower=np.minimum(own_low + less, 1.0),
        upper=np.minimum(own_high + more, 1.0),
        mass=1 - sizes / np.asarray(n),
        error=error,
        alpha=alpha,
    )


def labelled_either(
    leaks: ArrayLike,
    rest: ArrayLike,
    called: ArrayLike,
    n: ArrayLike,
    calibration: Calibration | None,
    alpha: float,
    missing: ArrayLike = 0,
) -> LabelledRates:
    """The better of `labelled_rates` with and without the judge, at alpha / 2 each.

    Only the labels show whether the judge's error can be measured: a random sample of the rest may contain no leak. It is not
    valid to choose between the two bounds, each at alpha, by the labels.

    Parameters
    ----------
    leaks, rest, called, n, alpha, missing
        As in `labelled_rates`.
    calibration : Calibration or None
        None if a judge was used but its error could not be measured. Then the bound uses only the labels, at alpha / 2.

    Returns
    -------
    LabelledRates
        Arrays of shape (questions,); ``error`` bounds the judge's rates, each side at alpha / 10.

    Notes
    -----
    Shares the assumptions of `labelled_rates`.

    Examples
    --------
    >>> judge = Calibration(leaks=40, leaks_called=38, clean=60, clean_called=3)
    >>> found = labelled_either(leaks=[5], rest=[20], called=[2], n=512, calibration=judge, alpha=0.05)
    >>> found.lower.round(3).tolist(), found.upper.round(3).tolist()
    ([0.003], [0.05])
    """
    check_alpha(alpha)
    alone = labelled_rates(leaks, rest, called, n, None, alpha / 2, missing)
    if calibration is None:
        return replace(alone, alpha=alpha, assumes=ASSUMES, method=METHOD_EITHER)
    judged = labelled_rates(leaks, rest, called, n, calibration, alpha / 2, missing)
    return replace(
        judged,
        lower=np.maximum(alone.lower, judged.lower),
        upper=np.minimum(alone.upper, judged.upper),
        alpha=alpha,
        method=METHOD_EITHER,
    )


def _share(numerator: np.ndarray, room: float, useless: float) -> np.ndarray:
    """The share of the rest that leaks, from the judge's rates; ``useless`` if the judge does not separate the classes."""
    if room <= 0:
        return np.full_like(numerator, useless)
    return np.clip(numerator / room, 0.0, 1.0)
