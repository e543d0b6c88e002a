"""Bounds on the share of prompts whose leak probability exceeds a threshold, from a few answers to each random prompt.

The leak probability of a prompt is not observed, only ``r`` answers to the prompt. A prompt counts as certified if the
Clopper-Pearson upper bound of its leak probability, at level beta, is at most tau, and as detected if the lower bound is
above tau. A prompt above tau is certified with probability at most beta, so

    P(not certified) >= share * (1 - beta),

and a prompt at or below tau is detected with probability at most beta, so

    P(detected) <= share + (1 - share) * beta.

Clopper-Pearson over the prompts bounds the left sides at level ``alpha``, and solving for the share gives its bounds. They
hold for any beta fixed beforehand. A large one certifies more of the prompts that leak a little: `CERTIFY` loses a factor 1
/ (1 - beta) where no prompt leaks, and gains far more where most leak a little.

Where a judge gives the answers' leaks, a prompt with leak p is called a leak with probability q = p se + (1 - p) fp, where
se is the judge's sensitivity and fp its false positive rate, in every prompt alike. Where se >= se_l, fp >= fp_l and se_l >
fp_l, p > tau implies q > tau se_l + (1 - tau) fp_l, so the share of prompts with such a q bounds the share sought from
above. Where se <= se_u, fp <= fp_u and se_u > fp_u, q > tau se_u + (1 - tau) fp_u implies p > tau. The rates and the share
take alpha / 3.
"""

from __future__ import annotations

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.bound import Bound, Covers, Side
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.checks import check_alpha
from lethe.statistics.counts import rate_bounds
from lethe.statistics.leak_rates import Rate

CERTIFY, DETECT = 0.25, 0.01  # beta of the upper and of the lower side
ASSUMES = "independent random prompts of the language, and independent draws of each"
METHOD = "Clopper-Pearson over prompts, each {how} by Clopper-Pearson at {beta:g}"


def share_exceeding(rate: Rate, tau: float, alpha: float, side: Side) -> Bound:
    """Bound the share of the language's prompts that leak with a probability above ``tau``.

    Parameters
    ----------
    rate : Rate
        The counted answers to m independently drawn prompts. With a judge, the bound is about true leaks.
    tau : float
        The threshold; above 0 and below 1.
    alpha : float
        The bound fails with at most this probability.
    side : {"upper", "lower"}
        The side of the bound.

    Returns
    -------
    Bound
        In [0, 1]; ``n`` is the number of prompts. 1 or 0 where a judge separates nothing.

    Raises
    ------
    BadValue
        If there are no prompts, or tau is outside (0, 1).

    Examples
    --------
    >>> share_exceeding(Rate.of([0] * 90 + [30] * 10, 64), 0.1, 0.05, "upper").percent()
    '21.9%'
    >>> share_exceeding(Rate.of([0] * 90 + [30] * 10, 64), 0.1, 0.05, "lower").percent()
    '4.5%'
    """
    check_alpha(alpha)
    prompts, assumes, level = len(rate.leaks), ASSUMES, alpha
    if not prompts or np.isnan(rate.leaks).any():
        raise BadValue("leaks", f"{prompts} counts", "one count per prompt, and at least one prompt")
    if not 0 < tau < 1:
        raise BadValue("tau", tau, "a number above 0 and below 1")
    beta = CERTIFY if side == "upper" else DETECT
    method, value = METHOD.format(how="certified" if side == "upper" else "detected", beta=beta), None
    if rate.judge is not None:
        error, corner = rate.judge.error(alpha / 3), 0 if side == "upper" else 1
        sensitivity, false_positive = error.sensitivity[corner], error.false_positive[corner]
        assumes = f"{ASSUMES}; {rate.judge.assumes('in every prompt')}"
        method += " of the judge's verdicts; the judge's sensitivity and false positive rate at alpha / 3 each"
        if sensitivity <= false_positive:
            value = 1.0 if side == "upper" else 0.0
        tau, level = tau * sensitivity + (1 - tau) * false_positive, alpha / 3
    if value is None and side == "upper":
        left = np.count_nonzero(rate_bounds(rate.leaks, rate.n, beta, rate.missing)[1] > tau)
        value = min(1.0, float(binary_upper(left, prompts, level)) / (1 - beta))
    elif value is None:
        detected = np.count_nonzero(rate_bounds(rate.leaks, rate.n, beta, rate.missing)[0] > tau)
        value = max(0.0, (float(binary_lower(detected, prompts, level)) - beta) / (1 - beta))
    return Bound(value, side, alpha, Covers.PROMPTS_OF_LANGUAGE, assumes, method, prompts)
