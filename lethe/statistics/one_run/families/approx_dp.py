"""The family of all (epsilon, delta0)-DP mechanisms: randomised response that reveals the bit with probability delta0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.one_run.channel import Channel, Family


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


def family(delta0: float) -> Family:
    """The nulls (epsilon, ``delta0``)-DP, ordered by epsilon; ``delta0`` must be in [0, 1)."""
    if not 0 <= delta0 < 1:
        raise BadValue("delta0", delta0, "a number of at least 0 and below 1")
    return Family("approx-dp", "epsilon", partial(ApproxDP, delta0=delta0), strongest=600.0)
