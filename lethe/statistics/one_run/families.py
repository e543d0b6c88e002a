"""The families of nulls by mechanism: a class per channel, and a function per family of its members.

Nulls are ordered by one number; `lethe.audits.one_run.inputs.family_of` names the families for users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy import special

from lethe.errors import BadValue
from lethe.statistics.one_run.channel import Channel, Family, SmoothChannel, Tangents, solve_epsilon

FARTHEST = 39.0  # standard deviations beyond which the normal tail is below the smallest double


@dataclass(frozen=True)
class ApproxDP(Channel):
    """Two losses: infinite with mass ``delta0``, else ``eps``."""

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
        # ln(e^eps - (delta - delta0)(1 + e^eps) / (1 - delta0)), with e^eps factored out of the logarithm.
        share = (delta - self.delta0) * (1 + math.exp(-self.eps)) / (1 - self.delta0)
        return max(0.0, self.eps + math.log1p(-share)) if share < 1 else 0.0


def approx_dp(delta0: float) -> Family:
    """The nulls (epsilon, ``delta0``)-DP, ordered by epsilon; ``delta0`` must be in [0, 1)."""
    if not 0 <= delta0 < 1:
        raise BadValue("delta0", delta0, "a number of at least 0 and below 1")
    return Family("approx-dp", "epsilon", partial(ApproxDP, delta0=delta0), strongest=600.0)


@dataclass(frozen=True)
class Gaussian(SmoothChannel):
    """Losses are measured as a = t / mu, the distance of the output from the midpoint mu / 2."""

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
            return upper + np.log1p(-np.exp(min(epsilon + lower - upper, 0.0)))

        return solve_epsilon(log_delta, delta)


def gaussian() -> Family:
    """The Gaussian nulls, mu-GDP, ordered by mu."""
    return Family("gaussian", "mu", Gaussian, strongest=100.0)


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
        """The losses t with s(t) = ``s``."""
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


def laplace() -> Family:
    """The Laplace nulls, ordered by mu."""
    return Family("laplace", "mu", Laplace, strongest=600.0)


@dataclass(frozen=True)
class SubsampledGaussian(SmoothChannel):
    """The channel of a Poisson sample at rate ``q`` with Gaussian noise at distance ``mu``."""

    mu: float
    q: float

    @property
    def highest_loss(self) -> float:
        """The loss of an output that lies FARTHEST standard deviations beyond mu."""
        return self.mu * (self.mu / 2 + FARTHEST)

    def outputs(self, t: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """The outputs whose losses are ln Q/P = t and -t, as distances beyond mu / 2; -inf for an impossible loss."""
        t = np.asarray(t, dtype=np.float64)
        q = self.q
        with np.errstate(divide="ignore", invalid="ignore"):
            small = np.log1p(np.expm1(np.minimum(t, 1.0)) / q)
            large = t - math.log(q) + np.log1p(-(1 - q) * np.exp(-t))  # the same, without overflow
            upper = np.where(t < 1, small, large)
            lower = np.log1p(np.maximum(np.expm1(-t) / q, -1.0))
        return upper / self.mu, lower / self.mu

    def masses(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        half, q = self.mu / 2, self.q
        upper, lower = self.outputs(t)
        p_above, shifted_above = special.ndtr(-upper - half), special.ndtr(half - upper)
        p_below, shifted_below = special.ndtr(lower + half), special.ndtr(lower - half)
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
        half, mu, q = self.mu / 2, self.mu, self.q

        def log_delta(epsilon: float) -> float:
            # Q against P, above the output where Q/P = e^epsilon. The other direction, P against Q, is never larger for
            # epsilon >= 0 (Zhu, Dong and Wang 2022). It is computed as a cheap check.
            upper, lower = self.outputs(epsilon)
            shifted, plain = special.log_ndtr(half - upper), special.log_ndtr(-upper - half)
            remove = math.log(q) + shifted + np.log1p(-np.exp(min(mu * upper + plain - shifted, 0.0)))
            if lower == -np.inf:
                return float(remove)
            p_below, shifted_below = special.ndtr(lower + half), special.ndtr(lower - half)
            add = p_below - math.exp(epsilon) * ((1 - q) * p_below + q * shifted_below)
            return float(max(remove, math.log(add) if add > 0 else -math.inf))

        return solve_epsilon(log_delta, delta)


def subsampled_gaussian(q: float) -> Family:
    """The subsampled Gaussian nulls at rate ``q``, ordered by mu; ``q`` must be in (0, 1]."""
    if not 0 < q <= 1:
        raise BadValue("q", q, "a number above 0 and up to 1")

    def channel(mu: float) -> SmoothChannel:
        return SubsampledGaussian(mu, q) if mu > 0 and q < 1 else Gaussian(mu)

    return Family("subsampled-gaussian", "mu", channel, strongest=100.0)
