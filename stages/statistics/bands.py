"""Simultaneous confidence bands for a distribution function."""

from __future__ import annotations

import math

from stages.statistics.checks import check_alpha, check_count


def dkw(n: int, alpha: float, sides: int = 1) -> float:
    """Half-width of the Dvoretzky-Kiefer-Wolfowitz band with Massart's constant.

    With probability 1 - alpha, for all x at once, F(x) >= F_n(x) - e (``sides`` 1, valid for alpha <= 1/2), or
    |F(x) - F_n(x)| <= e (``sides`` 2). ``n`` independent draws; no assumption on the distribution.
    """
    check_count("n", n)
    check_alpha(alpha)
    return math.sqrt(math.log(sides / alpha) / (2 * n))
