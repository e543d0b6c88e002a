"""Confidence: the probability of the correct class against one threshold per class (Song and Mittal 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lethe.audits.unlearning_game.adversaries import Shadow, ThresholdAttack
from studies.image_game.attacks import View


def score(view: View) -> np.ndarray:
    """Return ln p_y, which orders points as p_y does, without ties where p_y rounds to 1."""
    return view.log_probabilities[np.arange(len(view.labels)), view.labels]


def fit(shadows: Sequence[Shadow[View]], seed: int) -> ThresholdAttack[View]:
    """Fit the attack on the shadow models."""
    return ThresholdAttack(score, shadows)
