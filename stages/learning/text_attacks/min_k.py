"""Min-k%: the mean log-probability of the least likely tokens (Shi et al. 2024)."""

from __future__ import annotations

import numpy as np

from stages.learning.text_attacks import TextView
from stages.scoring.likelihood.mia_min_k import measure


def score(view: TextView) -> np.ndarray:
    return np.array([measure(item) for item in view.items])
