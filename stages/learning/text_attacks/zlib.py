"""The loss over the answer's length when compressed by zlib (Carlini et al. 2021)."""

from __future__ import annotations

import numpy as np

from stages.learning.text_attacks import TextView
from stages.scoring.likelihood.mia_zlib import measure


def score(view: TextView) -> np.ndarray:
    return np.array([measure(item) for item in view.items])
