"""Gauss-Legendre panels, and a test of whether a panel is too wide."""

from __future__ import annotations

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)

# Maps values at the nodes to the last three coefficients of their Legendre series, small if the series has converged.
_TRAILING = (np.polynomial.legendre.legvander(NODES, 15) * WEIGHTS[:, None] * (np.arange(16) + 0.5)).T[-3:]


def unresolved(values: np.ndarray) -> np.ndarray:
    """The size of the part that the nodes do not resolve, for each panel (row) of values at the nodes."""
    return np.abs(values @ _TRAILING.T).max(axis=-1)
