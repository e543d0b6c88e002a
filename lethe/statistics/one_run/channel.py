"""A null hypothesis about one bit: the channel through which the mechanism leaks the bit.

The bit is a fair coin. The output has distribution P if the bit is 0 and Q if the bit is 1; f = T(P, Q) is the trade-off
function. An observer who guesses the likelier bit errs with probability 1 / (1 + e^t), where t = |ln P/Q| is the absolute
privacy loss of the output. All methods need only two masses under (P + Q) / 2: s(t), the probability that the loss
exceeds t, and G, the probability that the loss exceeds t and the guess is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from lethe.statistics.one_run.roots import bracket_root

TABLE = 1024
MOST_STEPS = 200
INTERPOLATES = 1e-13  # below this (change of ln s) x (change of t), s and G are linear in t and in each other
SMALLEST = 1e-320


class Channel:
    """One member of a family of nulls."""

    @property
    def breaks(self) -> tuple[float, ...]:
        """The masses s where G is not smooth."""
        return ()

    def error_mass(self, s: np.ndarray) -> np.ndarray:
        """G at the masses ``s`` in (0, 1]: the error mass among the share ``s`` of outputs with the largest losses."""
        raise NotImplementedError

    def error_rate(self, s: np.ndarray) -> np.ndarray:
        """dG/ds = 1 / (1 + e^t(s)): the error probability of a guess whose loss has the mass ``s`` above it."""
        raise NotImplementedError

    def least_errors(self, correct: float) -> float:
        """The smallest probability of a wrong guess among strategies that guess right with probability ``correct``.

        For a symmetric trade-off function this is f(1 - correct).
        """
        raise NotImplementedError

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at which the channel is (epsilon, ``delta``)-DP in both directions; may be infinite."""
        raise NotImplementedError

    def highest_epsilon(self, delta: float) -> float:
        """`epsilon` rounded up instead of down, for a channel that is known only between two bounds."""
        return self.epsilon(delta)


class SmoothChannel(Channel):
    """A channel whose masses are known as functions of the loss t: s(t) is inverted by bisection."""

    @property
    def highest_loss(self) -> float:
        """A loss that no output of non-negligible weight exceeds."""
        raise NotImplementedError

    def masses(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(s(t), G(s(t))) at losses ``t`` >= 0; both decrease in t."""
        raise NotImplementedError

    def error_mass(self, s: np.ndarray) -> np.ndarray:
        # With a large parameter all mass lies at one loss, within the resolution of doubles. The error probability is
        # constant there, so G is linear in s between the two ends of the bracket.
        low, high, share = self._bracket(s)
        g_low, g_high = self.masses(low)[1], self.masses(high)[1]
        return (g_high + share * (g_low - g_high)).reshape(np.shape(s))

    def error_rate(self, s: np.ndarray) -> np.ndarray:
        return special.expit(-self.loss(s))

    def loss(self, s: np.ndarray) -> np.ndarray:
        """The loss t with s(t) = ``s``."""
        low, high, share = self._bracket(s)
        return (high - share * (high - low)).reshape(np.shape(s))

    def _bracket(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Losses low <= high with s(high) <= ``s`` <= s(low), and the position of s between s(high) and s(low), as a share.

        A table gives the first bracket. Regula falsi on ln s (with Illinois weights), with bisection every third
        step, shrinks the bracket until linear interpolation inside is exact to rounding.
        """
        losses, log_masses = self._table
        target = np.log(np.asarray(s, dtype=np.float64).ravel())
        place = np.clip(np.searchsorted(-log_masses, -target), 1, losses.size - 1)
        low, high = losses[place - 1], losses[place]
        f_low, f_high = log_masses[place - 1] - target, log_masses[place] - target
        weight_low, weight_high = np.ones(target.shape), np.ones(target.shape)
        active = np.arange(target.size)
        for step in range(MOST_STEPS):
            a, b, f_a, f_b = low[active], high[active], f_low[active], f_high[active]
            middle = 0.5 * (a + b)
            point = middle
            if step % 3 != 2:
                up, down = f_a * weight_low[active], -f_b * weight_high[active]
                point = np.divide(a * down + b * up, up + down, out=middle.copy(), where=up + down > 0)
                point = np.clip(point, a, b)
            value = np.log(np.maximum(self.masses(point)[0], SMALLEST)) - target[active]
            above = value >= 0
            # Illinois rule: halve the weight of a retained end, so that it moves in a later step.
            weight_high[active] = np.where(above, 0.5 * weight_high[active], 1.0)
            weight_low[active] = np.where(above, 1.0, 0.5 * weight_low[active])
            a, b = np.where(above, point, a), np.where(above, b, point)
            f_a, f_b = np.where(above, value, f_a), np.where(above, f_b, value)
            low[active], high[active], f_low[active], f_high[active] = a, b, f_a, f_b
            middle = 0.5 * (a + b)
            active = active[((f_a - f_b) * (b - a) > INTERPOLATES) & (a < middle) & (middle < b)]
            if not active.size:
                break
        width = np.expm1(f_low) - np.expm1(f_high)
        share = np.divide(-np.expm1(f_high), width, out=np.ones(target.shape), where=width > 0)
        return low, high, np.clip(share, 0.0, 1.0)

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        losses = np.linspace(0.0, self.highest_loss, TABLE)
        return losses, np.log(np.maximum(self.masses(losses)[0], SMALLEST))


@dataclass(frozen=True)
class Family:
    """Nulls ordered by one number, the strength; a larger strength leaks more.

    ``parameter`` is the name of the parameter for the user. ``strength`` converts the parameter to the strength and back:
    the noise sigma of DP-SGD is the reciprocal of its strength. ``strongest`` ends the search: a family rejected there is
    rejected as a whole. ``tolerance`` is the relative precision of the search.
    """

    name: str
    parameter: str
    channel: Callable[[float], Channel]
    strongest: float
    strength: Callable[[float], float] = float
    tolerance: float = 1e-11


def solve_epsilon(log_delta_at: Callable[[float], float], delta: float) -> float:
    """The smallest epsilon >= 0 with ``log_delta_at(epsilon)`` <= ln ``delta``; infinite if there is none."""
    if delta <= 0:
        return np.inf
    target = np.log(delta)

    def excess(epsilon: float) -> float:
        return target - log_delta_at(epsilon)  # rises with epsilon

    low, high = 0.0, 1.0
    f_low = excess(low)
    if f_low >= 0:
        return 0.0
    while (f_high := excess(high)) <= 0:
        low, f_low, high = high, f_high, 2 * high
        if high > 1e9:
            return np.inf
    return bracket_root(excess, low, high, f_low, f_high, 1e-13 * high)[1]
