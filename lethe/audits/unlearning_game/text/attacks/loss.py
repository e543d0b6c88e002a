"""The mean log-probability of the answer's tokens (Yeom et al. 2018)."""

from __future__ import annotations

import numpy as np

from lethe.audits.unlearning_game.text.attacks import TextView
from lethe.scoring.likelihood.membership import mia_loss as measure


def score(view: TextView) -> np.ndarray:
    """Return the mean log-probability per token."""
    return np.array([measure(item) for item in view.items])
