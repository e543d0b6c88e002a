"""Min-k%: the mean log-probability of the least likely tokens (Shi et al. 2024)."""

from __future__ import annotations

import numpy as np

from lethe.audits.unlearning_game.text.attacks import TextView
from lethe.scoring.likelihood.membership import mia_min_k as measure


def score(view: TextView) -> np.ndarray:
    """Return the mean log-probability of the least likely tokens."""
    return np.array([measure(item) for item in view.items])
