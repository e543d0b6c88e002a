"""The Laplace mechanism: Lap(0, 1) against Lap(mu, 1), which is (mu, 0)-DP."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lethe.statistics.one_run.channel import Channel, Family


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


def family() -> Family:
    """The Laplace nulls, ordered by mu."""
    return Family("laplace", "mu", Laplace, strongest=600.0)
