"""Modified entropy, which counts certainty of a wrong class as uncertainty (Song and Mittal 2021, eq. 8)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lethe.audits.unlearning_game.adversaries import Shadow, ThresholdAttack
from lethe.statistics.membership import modified_entropy
from studies.image_game.attacks import View


def score(view: View) -> np.ndarray:
    """Return the negative modified entropy."""
    return -modified_entropy(np.exp(view.log_probabilities), view.labels)


def fit(shadows: Sequence[Shadow[View]], seed: int) -> ThresholdAttack[View]:
    """Fit the attack on the shadow models."""
    return ThresholdAttack(score, shadows)
