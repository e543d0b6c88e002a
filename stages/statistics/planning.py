"""How many samples a wanted statement takes."""

from __future__ import annotations

import math

import numpy as np

from stages.errors import BadValue
from stages.statistics.checks import check_alpha, check_count
from stages.statistics.sequential import SequentialTest


def samples_for_width(width: float, alpha: float, sides: int = 1) -> int:
    """Draws for a DKW band of half-width ``width``: ln(sides / alpha) / (2 width^2), rounded up.

    The paper prints the one-sided number beside the two-sided level.
    """
    check_alpha(alpha)
    if not 0 < width < 1:
        raise BadValue("width", width, "a number strictly between 0 and 1")
    return math.ceil(math.log(sides / alpha) / (2 * width**2))


def samples_to_certify(tau: float, alpha: float) -> int:
    """Draws with no leak among them after which M_bin is at most ``tau``: ln(alpha) / ln(1 - tau), rounded up."""
    check_alpha(alpha)
    _check_tau(tau)
    return math.ceil(math.log(alpha) / math.log1p(-tau))


def expected_sequential(
    p: float, tau: float, tau_leak: float, alpha: float, cap: int, runs: int = 200, seed: int = 0
) -> float:
    """Mean samples until the sequential test decides, or ``cap``, where answers leak with probability ``p``.

    A simulation of ``runs`` runs.
    """
    check_count("runs", runs)
    rng, used = np.random.default_rng(seed), []
    for _ in range(runs):
        test = SequentialTest(tau, tau_leak, alpha, cap)
        while not test.done:
            test.update((rng.random(64) < p).astype(float))
        used.append(len(test.scores))
    return float(np.mean(used))


def _check_tau(tau: float) -> None:
    if not 0 < tau < 1:
        raise BadValue("tau", tau, "a number strictly between 0 and 1")
