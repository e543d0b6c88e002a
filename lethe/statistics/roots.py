"""Roots of many monotone functions at once, by the hybrid of bisection and inverse quadratic
interpolation of Chandrupatla (1997).

The results are to the bit those of `scipy.optimize.elementwise.find_root`, whose generality takes
most of its time: an audit in one run solves thousands of small arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

TINY = float(np.finfo(np.float64).smallest_normal)
# Halvings from the largest double to the smallest: a bracket that no double divides ends after them.
MOST_STEPS = 2046


@dataclass(frozen=True)
class Roots:
    """The last bracket of each root, and the values at its ends; all (m,)."""

    low: np.ndarray
    high: np.ndarray
    f_low: np.ndarray
    f_high: np.ndarray


def find_roots(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray],
    low: np.ndarray,
    high: np.ndarray,
    arguments: np.ndarray,
    *,
    absolute: float,
    relative: float = 0.0,
    zero: float = TINY,
) -> Roots:
    """Shrink brackets whose ends have values of different signs; another bracket stays.

    Parameters
    ----------
    function
        Takes places and arguments (k,) and returns values (k,), each of its own place alone.
    low, high, arguments
        (m,) the ends of each bracket, and the argument of its function.
    absolute, relative
        A bracket ends below the width ``absolute`` plus ``relative`` times its better end, which is
        the one with the smaller absolute value.
    zero
        The largest absolute value that counts as 0, and ends its bracket.
    """
    ends = np.stack([low, high])
    values = np.stack([function(end, arguments) for end in ends])
    state = np.concatenate([ends, ends[1:], values, values[1:]])  # of those that go on
    last = np.empty_like(state)
    active = np.arange(len(arguments))
    for _ in range(MOST_STEPS):
        x1, x2, _, f1, f2, _ = state
        sizes = np.abs(f1), np.abs(f2)
        width = np.abs(x2 - x1)
        least = np.abs(np.where(sizes[0] < sizes[1], x1, x2)) * relative + absolute
        stop = (np.minimum(*sizes) <= zero) | (np.sign(f1) == np.sign(f2)) | (width < least)
        last[:, active[stop]] = state[:, stop]
        go_on = ~stop
        active = active[go_on]
        arguments = arguments[go_on]
        state = state[:, go_on]
        if not active.size:
            break
        x1, x2, _, f1, f2, _ = state
        step = _interpolated(state, 0.5 * least[go_on] / width[go_on])
        x = x1 + step * (x2 - x1)
        f = function(x, arguments)
        same = np.sign(f) == np.sign(f1)
        x3 = np.where(same, x1, x2)
        f3 = np.where(same, f1, f2)
        state = np.stack([x, np.where(same, x2, x1), x3, f, np.where(same, f2, f1), f3])

    last[:, active] = state
    x1, x2, _, f1, f2, _ = last
    ordered = x1 < x2
    low, high = np.where(ordered, [x1, x2], [x2, x1])
    f_low, f_high = np.where(ordered, [f1, f2], [f2, f1])
    return Roots(low, high, f_low, f_high)


def _interpolated(state: np.ndarray, least: np.ndarray) -> np.ndarray:
    """(k,) the share of the way from x1 to x2 at which to look next, from ``state`` (6, k).

    The inverse quadratic through the three places gives it where that is safe, else it is a half,
    as it is before the first step, where x3 is x2; it is at least ``least`` away from both ends.
    """
    x1, x2, x3, f1, f2, f3 = state
    with np.errstate(divide="ignore", invalid="ignore"):
        xi = (x1 - x2) / (x3 - x2)
        phi = (f1 - f2) / (f3 - f2)
        alpha = (x3 - x1) / (x2 - x1)
        safe = (1 - np.sqrt(1 - xi) < phi) & (phi < np.sqrt(xi))
        first = f1 / (f1 - f2) * f3 / (f3 - f2)
        second = alpha * f1 / (f3 - f1) * f2 / (f2 - f3)
    return np.clip(np.where(safe, first - second, 0.5), least, 1 - least)
