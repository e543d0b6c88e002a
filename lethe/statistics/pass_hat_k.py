"""pass^k: the probability that all of k answers to a question are right, on average over the questions.

All of k answers are right unless one of them fails, so pass^k of the right answers is 1 - leak@k of the failures, and every
end of one is an end of the other: see `lethe.statistics.leak_rates.Rate.mean`. A missing answer is no right one in a lower
end and no failure in an upper one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lethe.statistics.checks import check_alpha
from lethe.statistics.leak_rates import Band, Rate


def pass_hat_k(right: np.ndarray, n: np.ndarray, missing: np.ndarray, alpha: float, ks: Sequence[int]) -> Band:
    """The mean of pass^k over the questions, with both ends at every k together, each side at ``alpha``.

    Parameters
    ----------
    right, n, missing : arrays of shape (m,)
        Right answers, answers drawn, and answers without a verdict, of each question.
    alpha : float
        Error probability of each side, above 0 and up to 0.5.
    ks : sequence of int
        Numbers of answers, each at least 1.

    Returns
    -------
    Band
        The estimate is the mean of C(right, k) / C(n, k), unbiased, and NaN where a question has fewer than k answers.

    Examples
    --------
    >>> band = pass_hat_k(np.array([8, 4]), np.array([8, 8]), np.zeros(2), alpha=0.05, ks=[1, 2])
    >>> band.estimate.round(4).tolist(), band.lower.round(4).tolist(), band.upper.round(4).tolist()
    ([0.75, 0.6071], [0.4554, 0.2074], [0.9357, 0.8916])
    """
    check_alpha(alpha)
    failed = np.asarray(n) - np.asarray(right) - np.asarray(missing)
    band = Rate.of(failed, n, missing).mean(alpha, ks)
    estimate, lower, upper = 1 - band.estimate, 1 - band.upper, 1 - band.lower
    return Band(band.k, estimate, lower, upper, alpha, band.covers, band.method, band.assumes, band.n)
