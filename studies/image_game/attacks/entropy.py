"""Entropy: low entropy of the predicted distribution against one threshold per class (Song and Mittal 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lethe.audits.unlearning_game.adversaries import Shadow, ThresholdAttack
from lethe.statistics.membership import entropy
from studies.image_game.attacks import View


def score(view: View) -> np.ndarray:
    """Return the negative entropy of the predicted distribution."""
    return -entropy(np.exp(view.log_probabilities))


def fit(shadows: Sequence[Shadow[View]], seed: int) -> ThresholdAttack[View]:
    """Fit the attack on the shadow models."""
    return ThresholdAttack(score, shadows)
