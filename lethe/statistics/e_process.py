"""E-values of leak counts that multiply over independent auditors.

For scores of 0 and 1, the capital of `lethe.statistics.sequential` against "an answer leaks with probability at least tau"
depends only on the counts. The capital after further draws, divided by the capital before, is an e-value of the further
draws given the earlier ones. The product of all auditors' e-values is the capital of all draws together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from lethe.errors import BadValue
from lethe.statistics.sequential import NODES, mixture

RULE = f"mixture of likelihood ratios, Beta(1/2, 1/2) below tau, {NODES} Gauss-Legendre nodes"


def log_e_value(leaks: ArrayLike, n: ArrayLike, tau: float) -> np.ndarray:
    """The logarithm of the e-value against a leak probability of at least ``tau``.

    Parameters
    ----------
    leaks, n : arrays of one shape
        Leaking answers and answers per question.
    tau : float
        The threshold of the claim, strictly between 0 and 1.

    Returns
    -------
    numpy.ndarray
        Where the leak probability is at least ``tau``, the e-value's expectation is at most 1 at any stopping time, and it
        ever reaches 1 / alpha with probability at most alpha (Ville 1939).

    Examples
    --------
    >>> first, both = log_e_value([0, 0], [100, 200], tau=0.05)
    >>> further = both - first                                  # what the second hundred draws add
    >>> round(float(first), 3), round(float(further), 3)
    (4.193, 4.785)
    """
    if not 0 < tau < 1:
        raise BadValue("tau", tau, "a number between 0 and 1")
    leaks, n = np.asarray(leaks, dtype=np.float64), np.asarray(n, dtype=np.float64)
    if (leaks < 0).any() or (leaks > n).any():
        raise BadValue("leaks", leaks.tolist(), "a count from 0 to the number of answers")
    q, log_weights = mixture(tau, above=False)
    logs = leaks[..., None] * np.log(q / tau) + (n - leaks)[..., None] * np.log((1 - q) / (1 - tau))
    return np.asarray(logsumexp(logs + log_weights, axis=-1))
