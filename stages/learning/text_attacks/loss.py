"""The mean log-probability of the answer's tokens (Yeom et al. 2018)."""

from __future__ import annotations

import numpy as np

from stages.learning.text_attacks import TextView
from stages.scoring.likelihood.mia_loss import measure


def score(view: TextView) -> np.ndarray:
    return np.array([measure(item) for item in view.items])
