"""The root of a monotone function, as a bracket with the function evaluated at both ends."""

from __future__ import annotations

import math
from collections.abc import Callable


def bracket_root(
    function: Callable[[float], float], low: float, high: float, f_low: float, f_high: float, tolerance: float
) -> tuple[float, float]:
    """Shrink a bracket around the change of sign of a function.

    Uses the interpolate-truncate-project method (Oliveira and Takahashi 2020, with their n0 = 1 and kappa2 = 2), which
    is superlinear on smooth functions and never more than one step slower than bisection.

    Parameters
    ----------
    function
        A continuous function of one number.
    low, high
        The ends of the bracket.
    f_low, f_high
        The values at the ends; ``f_low <= 0 < f_high``.
    tolerance
        The width at which the search stops.
    """
    kappa = 0.2 / (high - low)
    radius = tolerance / 2 * 2.0 ** (math.ceil(math.log2(max((high - low) / tolerance, 1.0))) + 1)
    while high - low > tolerance:
        width, middle = high - low, 0.5 * (low + high)
        guess = (f_high * low - f_low * high) / (f_high - f_low)
        toward = math.copysign(1.0, middle - guess)
        push = kappa * width**2
        point = guess + toward * push if push <= abs(middle - guess) else middle
        allowed = radius - width / 2
        if abs(point - middle) > allowed:
            point = middle - toward * allowed
        if not low < point < high:
            point = middle
            if not low < point < high:  # neighbouring doubles
                break
        value = function(point)
        if value <= 0:
            low, f_low = point, value
        else:
            high, f_high = point, value
        radius /= 2
    return low, high
