"""Min-k%++: the same of standardised log-probabilities (Zhang et al. 2024)."""

from __future__ import annotations

import numpy as np

from stages.learning.text_attacks import TextView
from stages.scoring.likelihood.mia_min_k_plus_plus import measure


def score(view: TextView) -> np.ndarray:
    return np.array([measure(item) for item in view.items])
