"""Adversaries of the text game: a module per adversary, or several in its ``MEMBERS``; ``attacks`` of params.yaml names them.

An adversary has ``score(view)``: (n,) float64 from a `TextView`, higher where the model more probably learned the row. The
game fits one threshold for all rows once, on the shadow models (see `lethe.audits.unlearning_game.adversaries`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.audits.unlearning_game.adversaries import Shadow, ThresholdAttack
from lethe.models.likelihood import AnswerTokens
from lethe.registry import TEXT_ATTACKS
from lethe.scoring.likelihood import Item


@dataclass(frozen=True)
class TextView:
    """An adversary's view of one language model on n rows.

    The view has the likelihood of each answer under the model, and under a shadow model that never saw the answer's
    author. ``model``: folder of the weights.
    """

    items: Sequence[Item]
    references: Sequence[AnswerTokens]
    model: Path | None = None

    @property
    def labels(self) -> np.ndarray:
        """Return the labels: all rows have one class."""
        return np.zeros(len(self.items), dtype=np.int64)


def fit(name: str, shadows: Sequence[Shadow[TextView]]) -> ThresholdAttack[TextView]:
    """Fit the threshold of one attack on the shadow models."""
    return ThresholdAttack(TEXT_ATTACKS[name].score, shadows)
