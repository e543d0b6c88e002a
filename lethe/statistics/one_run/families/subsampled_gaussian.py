"""The Gaussian mechanism on a Poisson sample: N(0, 1) against (1 - q) N(0, 1) + q N(mu, 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy import special

from lethe.errors import BadValue
from lethe.statistics.one_run.channel import Family, SmoothChannel, solve_epsilon
from lethe.statistics.one_run.families.gaussian import FARTHEST, Gaussian
from lethe.statistics.one_run.tangents import Tangents


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


def family(q: float) -> Family:
    """The subsampled Gaussian nulls at rate ``q``, ordered by mu; ``q`` must be in (0, 1]."""
    if not 0 < q <= 1:
        raise BadValue("q", q, "a number above 0 and up to 1")
    return Family("subsampled-gaussian", "mu", partial(_channel, q=q), strongest=100.0)


def _channel(mu: float, q: float) -> SmoothChannel:
    return SubsampledGaussian(mu, q) if mu > 0 and q < 1 else Gaussian(mu)
