"""The loss divided by the answer's length after compression by zlib (Carlini et al. 2021)."""

from __future__ import annotations

import numpy as np

from lethe.audits.unlearning_game.text.attacks import TextView
from lethe.scoring.likelihood.membership import mia_zlib as measure


def score(view: TextView) -> np.ndarray:
    """Return the mean log-probability per token, divided by the number of compressed bytes."""
    return np.array([measure(item) for item in view.items])
