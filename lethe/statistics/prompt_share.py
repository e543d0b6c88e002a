"""Bounds on the share of prompts whose leak probability exceeds a threshold, from a few answers to each random prompt.

The leak probability of a prompt is not observed, only ``r`` answers to the prompt. A prompt counts as certified if the
Clopper-Pearson upper bound of its leak probability, at level ``alpha``, is at most tau, and as detected if the lower bound
is above tau. A prompt above tau is certified with probability at most alpha, so

    P(not certified) >= share * (1 - alpha),

and a prompt at or below tau is detected with probability at most alpha, so

    P(detected) <= share + (1 - share) * alpha.

Clopper-Pearson over the prompts bounds the left sides at level ``alpha``. Solving for the share gives its bounds.

Where a judge gives the answers' leaks, a prompt with leak p is called a leak with probability q = p se + (1 - p) fp, where se
is the judge's sensitivity and fp its false positive rate. Where se >= se_l, fp >= fp_l and se_l > fp_l, p > tau implies
q > tau se_l + (1 - tau) fp_l, so the share of prompts with such a q bounds the share sought from above. Where se <= se_u,
fp <= fp_u and se_u > fp_u, q > tau se_u + (1 - tau) fp_u implies p > tau. The rates and the share take alpha / 3 each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import BadValue
from lethe.statistics.bound import Bound, Covers, Side
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.checks import check_alpha
from lethe.statistics.judge_error import Calibration, shared_error

ASSUMES = "independent random prompts of the language, and independent draws of each"
ASSUMES_JUDGED = f"{ASSUMES}; the calibration answers are other draws; {{}}"
METHOD_JUDGED = (
    "Clopper-Pearson over prompts, each certified or detected by Clopper-Pearson on the judge's verdicts, and on the judge's "
    "sensitivity and false positive rate, alpha / 3 each"
)
METHOD = "Clopper-Pearson over prompts, each certified or detected by Clopper-Pearson"


def share_exceeding(leaks: ArrayLike, answers: int, tau: float, alpha: float, side: Side) -> Bound:
    """Bound the share of the language's prompts that leak with a probability above ``tau``.

    Parameters
    ----------
    leaks : array of shape (m,)
        The number of leaking answers to each of m independently drawn prompts. A missing judgement must count as a leak
        for the upper side and as clean for the lower side.
    answers : int
        The answers to each prompt, r.
    tau : float
        The threshold; above 0 and below 1.
    alpha : float
        The bound fails with at most this probability. This is also the level of each prompt's own certificate.
    side : {"upper", "lower"}
        The side of the bound.

    Returns
    -------
    Bound
        In [0, 1]; ``n`` is the number of prompts.

    Raises
    ------
    BadValue
        If there are no prompts, a count is outside 0 to ``answers``, or tau is outside (0, 1).

    Examples
    --------
    >>> share_exceeding([0] * 90 + [30] * 10, 64, 0.1, 0.05, "upper").percent()
    '17.3%'
    >>> share_exceeding([0] * 90 + [30] * 10, 64, 0.1, 0.05, "lower").percent()
    '0.5%'
    """
    check_alpha(alpha)
    counts = np.asarray(leaks, dtype=np.float64)
    if counts.ndim != 1 or not len(counts):
        raise BadValue("leaks", f"shape {counts.shape}", "one count per prompt, and at least one prompt")
    if counts.min() < 0 or counts.max() > answers:
        raise BadValue("leaks", f"{counts.min():g} to {counts.max():g}", f"counts from 0 to {answers}")
    if not 0 < tau < 1:
        raise BadValue("tau", tau, "a number above 0 and below 1")
    prompts = len(counts)
    if side == "upper":
        open_prompts = np.count_nonzero(np.asarray(binary_upper(counts, answers, alpha)) > tau)
        value = min(1.0, float(binary_upper(open_prompts, prompts, alpha)) / (1 - alpha))
    else:
        detected = np.count_nonzero(np.asarray(binary_lower(counts, answers, alpha)) > tau)
        value = max(0.0, (float(binary_lower(detected, prompts, alpha)) - alpha) / (1 - alpha))
    return Bound(value, side, alpha, Covers.PROMPTS_OF_LANGUAGE, ASSUMES, METHOD, prompts)


def judged_share_exceeding(
    called: ArrayLike, answers: int, tau: float, calibration: Calibration, alpha: float, side: Side
) -> Bound:
    """Bound the share of the language's prompts that truly leak with a probability above ``tau``, by a judge's verdicts.

    Parameters
    ----------
    called : array of shape (m,)
        The number of answers that the judge calls a leak, to each of m independently drawn prompts. A missing verdict must
        count as a leak for the upper side and as none for the lower side.
    answers, tau, side
        As in `share_exceeding`.
    calibration : Calibration
        The judge's verdicts against a person's labels on other answers.
    alpha : float
        The bound fails with at most this probability.

    Returns
    -------
    Bound
        In [0, 1]; 1 or 0 where the judge separates nothing.

    Raises
    ------
    BadValue
        As in `share_exceeding`.

    Examples
    --------
    >>> judge = Calibration(leaks=200, leaks_called=190, clean=200, clean_called=10)
    >>> judged_share_exceeding([3] * 90 + [60] * 10, 64, 0.3, judge, 0.05, "upper").percent()
    '18.7%'
    """
    error = shared_error(calibration, alpha)
    corner = 0 if side == "upper" else 1
    sensitivity, false_positive = error.sensitivity[corner], error.false_positive[corner]
    plain = share_exceeding(called, answers, tau, alpha / 3, side)
    value = 1.0 if side == "upper" else 0.0
    if sensitivity > false_positive:
        threshold = tau * sensitivity + (1 - tau) * false_positive
        value = share_exceeding(called, answers, threshold, alpha / 3, side).value
    assumes = ASSUMES_JUDGED.format(calibration.assumes)
    return Bound(value, side, alpha, plain.covers, assumes, METHOD_JUDGED, plain.n)
