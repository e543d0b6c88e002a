"""Convex curves from points: bounded from below by tangents, never from above by chords.

A null must lie on or below the true curve, or a private mechanism could be rejected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import numpy as np
from scipy import special

KNOTS = 8192


class Tangents:
    """The maximum of tangents of a convex increasing function, as a function of one float.

    ``x`` and ``y`` are points with ascending x; ``slope`` holds the ascending slopes of the function at the points.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, slope: np.ndarray):
        # Between two knots, the left tangent is the larger one up to the point where both meet.
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = (np.diff(y) - slope[1:] * x[1:] + slope[:-1] * x[:-1]) / -np.diff(slope)
        middle = 0.5 * (x[1:] + x[:-1])
        meet = np.clip(np.where(np.isfinite(meet), meet, middle), x[:-1], x[1:])
        self._starts, self._x, self._y, self._slope = meet.tolist(), x.tolist(), y.tolist(), slope.tolist()

    def __call__(self, x: float) -> float:
        i = bisect_right(self._starts, x)
        return max(0.0, self._y[i] + self._slope[i] * (x - self._x[i]))

    @classmethod
    def of_losses(cls, masses: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], highest: float) -> Tangents:
        """The error mass as a function of the mass of right guesses; its slope at the loss t is e^-t."""
        t = highest * np.linspace(1.0, 0.0, KNOTS) ** 2
        s, wrong = masses(t)
        right, first = np.unique(s - wrong, return_index=True)
        return cls(right, wrong[first], special.expit(-t[first]) / special.expit(t[first]))
