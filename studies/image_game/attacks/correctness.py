"""Correctness: accept the points that the model classifies correctly (Yeom et al. 2018). Nothing is fitted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lethe.audits.unlearning_game.adversaries import Shadow
from studies.image_game.attacks import View


class Correctness:
    """An adversary that accepts correctly classified points."""

    def score(self, view: View) -> np.ndarray:
        """Return 1 where the model is correct, else 0."""
        return (view.logits.argmax(axis=-1) == view.labels).astype(np.float64)

    accept = score


def fit(shadows: Sequence[Shadow[View]], seed: int) -> Correctness:
    """Return the adversary; nothing is fitted."""
    return Correctness()
