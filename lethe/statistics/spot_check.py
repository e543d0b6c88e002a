"""What a spot check of s of n committed draws proves, against any prover who does not know the coin.

A prover commits to n draws of a question (their texts and scores), then the verifier chooses s of them by
a coin, draws these answers again and compares. A draw is forged if its published score is 0 and its true
score is 1. With F forged draws the check is clean with probability h(F) = C(n - F, s) / C(n, s), as the
coin is independent of answers and forgeries.
"""

import numpy as np
from scipy.special import gammaln

from lethe.statistics.bounds import binary_upper
from lethe.statistics.checks import check, check_alpha, check_count
from lethe.statistics.search import fewest_between

EDGE = 1e-12  # of the bracket of a root: no leak rate is known better


def log_clean(n: int, forged: np.ndarray, s: int) -> np.ndarray:
    """ln h(F) for each number of forged draws, minus infinity where the check must find one.

    >>> np.exp(log_clean(4096, np.array([0, 41]), 688)).round(6).tolist()
    [1.0, 0.000511]
    """
    log = np.full(len(forged), -np.inf)
    possible = forged <= n - s
    f = forged[possible].astype(np.float64)
    log[possible] = (
        gammaln(n - f + 1) - gammaln(n - f - s + 1) - gammaln(n + 1) + gammaln(n - s + 1)
    )
    return log


def most_forged(n: int, s: int, beta: float, mismatches: int = 0) -> int:
    """F*: the largest number of forged draws of n that a check of s finds at most ``mismatches`` of with a
    probability above ``beta``. More forged draws pass with probability at most ``beta``.

    >>> [most_forged(4096, 688, 0.001, m) for m in (0, 1, 2)]
    [37, 50, 61]
    """
    from scipy.stats import hypergeom  # the import takes 0.5 s

    _check_sizes(n, s)
    check_alpha(beta)

    def is_found(forged: int) -> bool:
        return hypergeom.cdf(mismatches, n, forged, s) <= beta

    return fewest_between(is_found, mismatches, n + 1) - 1


def passes(p: float, n: int, leaks: int, s: int) -> float:
    """g(p; c): the largest probability, over all provers, of reporting at most ``leaks`` of n and passing a
    check of s, where each draw leaks with probability ``p``. n and s must be fixed before the draws.

    Without a reported leak it is (1 - p)^s: a clean check is worth s independent draws without a leak.

    >>> round(passes(0.5, 4, 1, 2), 6)
    0.541667
    """
    from scipy.stats import binom  # the import takes 0.5 s

    counts = np.arange(n + 1)
    forged = np.maximum(counts - leaks, 0)
    clean = np.exp(log_clean(n, forged, s))
    return float(min(1.0, binom.pmf(counts, n, p) @ clean))


def exact_upper(n: int, leaks: int, s: int, alpha: float) -> float:
    """U(c): the upper end of the leak probability after a clean check, for n and s fixed before the draws.

    P(p > U and the check is clean) is at most ``alpha`` against every prover, and the prover who always
    reports the largest false count attains it. With s = n it is the end of Clopper and Pearson.

    >>> round(exact_upper(4096, 82, 688, 0.01), 5)
    0.0285
    """
    _check_sizes(n, s)
    check_alpha(alpha)
    if leaks >= n:
        return 1.0
    from scipy.optimize import brentq  # the import takes 0.25 s

    return float(brentq(lambda p: passes(p, n, leaks, s) - alpha, EDGE, 1 - EDGE, xtol=EDGE))


def split_upper(n: int, leaks: int, s: int, alpha: float, mismatches: int = 0) -> float:
    """The upper end of the leak probability at ``alpha``, half of it for the forged draws, for n fixed before
    the draws and any s chosen before the coin, even from the report.

    >>> round(split_upper(4096, 82, 688, 0.01), 5)
    0.03406
    """
    forged = most_forged(n, s, alpha / 2, mismatches)
    return float(binary_upper(min(n, leaks + forged), n, alpha / 2))


def smallest_check(n: int, leaks: int, tau: float, alpha: float) -> int | None:
    """The smallest s after which `exact_upper` is at most ``tau``; None where not even all n draws suffice.

    >>> [smallest_check(4096, leaks, 0.05, 0.01) for leaks in (0, 41, 82)]
    [90, 114, 154]
    """
    if passes(tau, n, leaks, n) > alpha:
        return None
    return fewest_between(lambda s: passes(tau, n, leaks, s) <= alpha, 0, n)


def _check_sizes(n: int, s: int) -> None:
    check_count("n", n)
    check(1 <= s <= n, "s", s, f"a whole number from 1 to n ({n})")
