"""A null hypothesis about one bit, the channel through which the mechanism leaks the bit, and the
families of nulls.

The output has distribution P if the bit, a fair coin, is 0 and Q if it is 1; f = T(P, Q) is the
trade-off function. An observer who guesses the likelier bit errs with probability 1 / (1 + e^t),
where t = |ln P/Q| is the absolute privacy loss of the output. All methods need only two masses
under (P + Q) / 2: s(t), the probability that the loss exceeds t, and G, the probability that the
loss exceeds t and the guess is wrong.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
from scipy import special

from lethe.statistics.checks import check

TABLE = 1024
KNOTS = 8192  # of the tangents
SMALLEST = 1e-320


class Channel:
    """One member of a family of nulls.

    Masses are under (P + Q) / 2, and arrays of them may have any shape.
    """

    @property
    def breaks(self) -> tuple[float, ...]:
        """The masses s where G is not smooth."""
        return ()

    def error_mass(self, s: np.ndarray) -> np.ndarray:
        """G at the masses ``s`` in (0, 1]: the error mass among the share ``s`` of outputs with the
        largest losses.
        """
        raise NotImplementedError

    def error_rate(self, s: np.ndarray) -> np.ndarray:
        """dG/ds = 1 / (1 + e^t(s)): the error probability of a guess whose loss has the mass ``s``
        above it.
        """
        raise NotImplementedError

    def least_errors(self, correct: float) -> float:
        """The least probability of a wrong guess where right ones have ``correct``: f(1 - correct)
        for symmetric f.
        """
        raise NotImplementedError

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at which the channel is (epsilon, ``delta``)-DP in both directions;
        may be infinite.
        """
        raise NotImplementedError

    def highest_epsilon(self, delta: float) -> float:
        """`epsilon` rounded up instead of down, for a channel that is known only between two
        bounds.
        """
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
        # With a large parameter all mass lies at one loss, within the resolution of doubles. The
        # error probability is constant there, so G is linear in s between the two ends of the
        # bracket.
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
        """Losses low <= high with s(high) <= ``s`` <= s(low), and the position of s between s(high)
        and s(low), as a share.

        A table gives the first bracket; within the last one, s and G are linear in t and in each
        other.
        """
        from scipy.optimize.elementwise import find_root  # the import takes 0.25 s

        losses, log_masses = self._table
        target = np.log(np.asarray(s, dtype=np.float64).ravel())
        place = np.clip(np.searchsorted(-log_masses, -target), 1, losses.size - 1)

        def excess(t: np.ndarray, goal: np.ndarray) -> np.ndarray:
            return self._log_mass(t) - goal

        tolerances = {"xatol": 1e-15, "xrtol": 1e-15}
        bracket = (losses[place - 1], losses[place])
        root = find_root(excess, bracket, args=(target,), tolerances=tolerances)

        # A root that was hit is both ends.
        exact = root.f_x == 0
        low = np.where(exact, root.x, root.bracket[0])
        high = np.where(exact, root.x, root.bracket[1])
        f_low = np.where(exact, 0.0, root.f_bracket[0])
        f_high = np.where(exact, 0.0, root.f_bracket[1])

        # The values are of ln s, relative to the target: their exponentials are masses.
        width = np.expm1(f_low) - np.expm1(f_high)
        share = np.divide(-np.expm1(f_high), width, out=np.ones(target.shape), where=width > 0)
        return low, high, np.clip(share, 0.0, 1.0)

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """(TABLE,) losses, and ln of the masses above them."""
        losses = np.linspace(0.0, self.highest_loss, TABLE)
        return losses, self._log_mass(losses)

    def _log_mass(self, t: np.ndarray) -> np.ndarray:
        """ln s(t), where s is at least `SMALLEST`."""
        return np.log(np.maximum(self.masses(t)[0], SMALLEST))


@dataclass(frozen=True)
class Nulls:
    """Nulls ordered by one number, the strength; a larger strength leaks more.

    Attributes
    ----------
    name
        The name of the family.
    parameter
        The name of the number that a user knows.
    channel
        From a strength to its null.
    strongest
        The largest strength that is tried: a family rejected there is rejected as a whole.
    strength
        Converts the user's parameter to the strength and back: the noise sigma of DP-SGD is the
        reciprocal of its strength.
    tolerance
        Relative, of a strength that is searched for.
    """

    name: str
    parameter: str
    channel: Callable[[float], Channel]
    strongest: float
    strength: Callable[[float], float] = float
    tolerance: float = 1e-11


def bracket_root(
    function: Callable[[float], float], low: float, high: float, tolerance: float
) -> tuple[float, float]:
    """Shrink a bracket with ``function(low) <= 0 < function(high)`` to the width ``tolerance``; the
    signs stay.
    """
    from scipy.optimize.elementwise import find_root  # the import takes 0.25 s

    tolerances = {"xatol": tolerance, "xrtol": 0.0, "fatol": 0.0, "frtol": 0.0}
    root = find_root(np.vectorize(function, otypes=[float]), (low, high), tolerances=tolerances)
    if root.f_x == 0:
        return float(root.x), float(root.x)
    left, right = root.bracket
    return float(left), float(right)


def solve_epsilon(log_delta_at: Callable[[float], float], delta: float) -> float:
    """The smallest epsilon >= 0 with ``log_delta_at(epsilon)`` <= ln ``delta``; infinite if there
    is none.

    The function falls with epsilon. The answer is the upper end of the last bracket.
    """
    if delta <= 0:
        return np.inf
    target = np.log(delta)

    def excess(epsilon: float) -> float:
        return target - log_delta_at(epsilon)  # rises with epsilon

    low, high = 0.0, 1.0
    if excess(low) >= 0:
        return 0.0
    while excess(high) <= 0:
        low, high = high, 2 * high
        if high > 1e9:
            return np.inf
    return bracket_root(excess, low, high, 1e-13 * high)[1]


class Tangents:
    """The maximum of tangents of a convex increasing function: a null must lie on or below the true
    curve, never above it.

    ``x`` and ``y`` are points with ascending x; ``slope`` holds the ascending slopes of the
    function at the points.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, slope: np.ndarray):
        # Between two knots, the left tangent is the larger one up to the point where both meet.
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = (np.diff(y) - slope[1:] * x[1:] + slope[:-1] * x[:-1]) / -np.diff(slope)
        middle = 0.5 * (x[1:] + x[:-1])
        meet = np.clip(np.where(np.isfinite(meet), meet, middle), x[:-1], x[1:])

        # Lists, because single numbers of an array are slow to read.
        self._starts = meet.tolist()
        self._x = x.tolist()
        self._y = y.tolist()
        self._slope = slope.tolist()

    def __call__(self, x: float) -> float:
        i = bisect_right(self._starts, x)
        return max(0.0, self._y[i] + self._slope[i] * (x - self._x[i]))

    @classmethod
    def of_losses(
        cls, masses: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], highest: float
    ) -> Self:
        """The error mass as a function of the mass of right guesses; its slope at the loss t is
        e^-t.
        """
        t = highest * np.linspace(1.0, 0.0, KNOTS) ** 2
        s, wrong = masses(t)
        right, first = np.unique(s - wrong, return_index=True)
        slope = special.expit(-t[first]) / special.expit(t[first])
        return cls(right, wrong[first], slope)


FARTHEST = 39.0  # standard deviations beyond which the normal tail is below the smallest double


@dataclass(frozen=True)
class ApproxDP(Channel):
    """Two losses: infinite with mass ``delta0``, else ``eps``.

    This is the worst of all (``eps``, ``delta0``)-DP mechanisms: its trade-off function is
    max(0, 1 - delta0 - e^eps alpha, e^-eps (1 - delta0 - alpha)) (Wasserman and Zhou 2010).
    """

    eps: float
    delta0: float

    @property
    def breaks(self) -> tuple[float, ...]:
        return (self.delta0,)

    def error_mass(self, s: np.ndarray) -> np.ndarray:
        return np.maximum(np.asarray(s) - self.delta0, 0.0) / (1 + math.exp(self.eps))

    def error_rate(self, s: np.ndarray) -> np.ndarray:
        return np.where(np.asarray(s) > self.delta0, 1 / (1 + math.exp(self.eps)), 0.0)

    def least_errors(self, correct: float) -> float:
        flat = math.exp(-self.eps) * (correct - self.delta0)
        steep = 1 - self.delta0 - math.exp(self.eps) * (1 - correct)
        return max(0.0, flat, steep)

    def epsilon(self, delta: float) -> float:
        if delta < self.delta0:
            return math.inf
        # ln(e^eps - (delta - delta0)(1 + e^eps) / (1 - delta0)), with e^eps factored out of the
        # logarithm.
        share = (delta - self.delta0) * (1 + math.exp(-self.eps)) / (1 - self.delta0)
        if share >= 1:
            return 0.0
        return max(0.0, self.eps + math.log1p(-share))


def approx_dp(delta0: float) -> Nulls:
    """(epsilon, ``delta0``)-DP at every epsilon; ``delta0`` is in [0, 1)."""
    check(0 <= delta0 < 1, "delta0", delta0, "a number of at least 0 and below 1")
    return Nulls("approx-dp", "epsilon", partial(ApproxDP, delta0=delta0), strongest=600.0)


@dataclass(frozen=True)
class Gaussian(SmoothChannel):
    """Gaussian noise of standard deviation 1 at distance ``mu``.

    Losses are measured as a = t / mu, the distance of the output from the midpoint mu / 2.
    """

    mu: float

    def masses(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        wrong = special.ndtr(-t - self.mu / 2)
        return wrong + special.ndtr(self.mu / 2 - t), wrong

    @property
    def highest_loss(self) -> float:
        return self.mu / 2 + FARTHEST

    def error_rate(self, s: np.ndarray) -> np.ndarray:
        return special.expit(-self.mu * self.loss(s))

    def least_errors(self, correct: float) -> float:
        return float(special.ndtr(special.ndtri(correct) - self.mu))

    def epsilon(self, delta: float) -> float:
        mu = self.mu
        if mu == 0:
            return 0.0

        def log_delta(epsilon: float) -> float:
            upper = special.log_ndtr(mu / 2 - epsilon / mu)
            lower = special.log_ndtr(-mu / 2 - epsilon / mu)
            taken = min(epsilon + lower - upper, 0.0)
            return upper + np.log1p(-np.exp(taken))

        return solve_epsilon(log_delta, delta)


def gaussian() -> Nulls:
    """mu-GDP."""
    return Nulls("gaussian", "mu", Gaussian, strongest=100.0)


@dataclass(frozen=True)
class Laplace(Channel):
    """The channel of Laplace noise at distance ``mu``; its largest loss is mu."""

    mu: float

    @property
    def atom(self) -> float:
        """The mass of the outputs outside (0, mu), whose loss is exactly mu."""
        return 0.5 + 0.5 * math.exp(-self.mu)

    @property
    def breaks(self) -> tuple[float, ...]:
        return (self.atom,)

    def loss(self, s: np.ndarray) -> np.ndarray:
        inner = 2 * np.arcsinh((1 - np.asarray(s)) * math.exp(self.mu / 2))
        return np.where(np.asarray(s) > self.atom, inner, self.mu)

    def error_mass(self, s: np.ndarray) -> np.ndarray:
        inside = 0.5 * np.exp(-0.5 * (self.mu + self.loss(s)))
        return np.where(np.asarray(s) > self.atom, inside, s / (1 + math.exp(self.mu)))

    def error_rate(self, s: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(self.loss(s)))

    def least_errors(self, correct: float) -> float:
        if correct < 0.5:
            return math.exp(-self.mu) * correct
        if correct <= 1 - 0.5 * math.exp(-self.mu):
            return 0.25 * math.exp(-self.mu) / (1 - correct)
        return max(0.0, 1 - math.exp(self.mu) * (1 - correct))

    def epsilon(self, delta: float) -> float:
        return max(0.0, self.mu + 2 * math.log1p(-delta))


def laplace() -> Nulls:
    """The Laplace mechanism at distance mu in scales of its noise: mu-DP."""
    return Nulls("laplace", "mu", Laplace, strongest=600.0)


@dataclass(frozen=True)
class SubsampledGaussian(SmoothChannel):
    """The channel of a Poisson sample at rate ``q`` with Gaussian noise at distance ``mu``."""

    mu: float
    q: float

    @property
    def breaks(self) -> tuple[float, ...]:
        end = -math.log1p(-self.q) * (1 + 1e-14)  # just past ln(1 - q), the lowest loss ln Q/P
        return (float(self.masses(np.array(end))[0]),)

    @property
    def highest_loss(self) -> float:
        return self.mu * (self.mu / 2 + FARTHEST)

    def outputs(self, t: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """The outputs whose losses are ln Q/P = t and -t, as distances beyond mu / 2; -inf for an
        impossible loss.
        """
        t = np.asarray(t, dtype=np.float64)
        q = self.q
        with np.errstate(divide="ignore", invalid="ignore"):
            small = np.log1p(np.expm1(np.minimum(t, 1.0)) / q)
            large = t - math.log(q) + np.log1p(-(1 - q) * np.exp(-t))  # the same, without overflow
            upper = np.where(t < 1, small, large)
            lower = np.log1p(np.maximum(np.expm1(-t) / q, -1.0))
        return upper / self.mu, lower / self.mu

    def masses(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        half = self.mu / 2
        q = self.q
        upper, lower = self.outputs(t)
        p_above = special.ndtr(-upper - half)
        p_below = special.ndtr(lower + half)
        shifted_above = special.ndtr(half - upper)
        shifted_below = special.ndtr(lower - half)
        q_above = (1 - q) * p_above + q * shifted_above
        q_below = (1 - q) * p_below + q * shifted_below
        wrong = 0.5 * (p_above + q_below)
        return wrong + 0.5 * (q_above + p_below), wrong

    @cached_property
    def _tangents(self) -> Tangents:
        return Tangents.of_losses(self.masses, self.highest_loss)

    def least_errors(self, correct: float) -> float:
        return self._tangents(correct)

    def epsilon(self, delta: float) -> float:
        if delta >= self.q:
            return 0.0
        half = self.mu / 2
        mu = self.mu
        q = self.q

        def log_delta(epsilon: float) -> float:
            # Q against P, above the output where Q/P = e^epsilon. The other direction, P against Q,
            # is never larger for epsilon >= 0 (Zhu, Dong and Wang 2022). It is computed as a cheap
            # check.
            upper, lower = self.outputs(epsilon)
            shifted = special.log_ndtr(half - upper)
            plain = special.log_ndtr(-upper - half)
            taken = min(mu * upper + plain - shifted, 0.0)
            remove = float(math.log(q) + shifted + np.log1p(-np.exp(taken)))
            if lower == -np.inf:
                return remove
            p_below = special.ndtr(lower + half)
            shifted_below = special.ndtr(lower - half)
            q_below = (1 - q) * p_below + q * shifted_below
            add = p_below - math.exp(epsilon) * q_below
            if add <= 0:
                return remove
            return max(remove, math.log(add))

        return solve_epsilon(log_delta, delta)


def subsampled_gaussian(q: float) -> Nulls:
    """The Gaussian mechanism at distance mu on a Poisson sample at rate ``q``, in (0, 1]."""
    check(0 < q <= 1, "q", q, "a number above 0 and up to 1")

    def channel(mu: float) -> SmoothChannel:
        if mu > 0 and q < 1:
            return SubsampledGaussian(mu, q)
        return Gaussian(mu)

    return Nulls("subsampled-gaussian", "mu", channel, strongest=100.0)
