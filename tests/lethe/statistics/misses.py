"""How many misses of a bound a simulation may show before a test fails."""

from __future__ import annotations

import math


def tolerated(alpha: float, runs: int) -> float:
    """The largest share of misses that is tolerated: alpha plus three standard errors."""
    return alpha + 3 * math.sqrt(alpha * (1 - alpha) / runs)


def allowed(alpha: float, runs: int) -> float:
    """The largest number of misses in ``runs`` that is tolerated: the mean plus 2.6 standard deviations."""
    return runs * alpha + 2.6 * math.sqrt(runs * alpha * (1 - alpha))
