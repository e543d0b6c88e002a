"""Min-k%++: the mean of the smallest standardised log-probabilities (Zhang et al. 2024)."""

from __future__ import annotations

import numpy as np

from lethe.audits.unlearning_game.text.attacks import TextView
from lethe.scoring.likelihood.membership import mia_min_k_plus_plus as measure


def score(view: TextView) -> np.ndarray:
    """Return the mean of the smallest standardised log-probabilities."""
    return np.array([measure(item) for item in view.items])
