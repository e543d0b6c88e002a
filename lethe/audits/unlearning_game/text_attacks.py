"""Adversaries of the text game, which ``attacks`` of params.yaml names.

An adversary has ``score(view)``: (n,) float64 from a `TextView`, higher where the model more probably learned the row. The
game fits one threshold for all rows once, on the shadow models (see `lethe.audits.unlearning_game.rounds`).

- ``loss``: the mean log-probability per token (Yeom et al. 2018), and ``zlib``: the same per compressed byte (Carlini et al.
  2021).
- ``min_k``: the mean log-probability of the least likely tokens (Shi et al. 2024), and ``min_k_plus_plus``: the same of
  standardised log-probabilities (Zhang et al. 2024).
- ``reference``: the mean log-probability per token minus that of a model that never saw the answer, in nats (Carlini et al.
  2021).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.models.likelihood import AnswerTokens
from lethe.scoring import likelihood
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
        return np.zeros(len(self.items), dtype=np.int64)


@dataclass(frozen=True)
class OfItems:
    """A membership measure of each row by itself."""

    measure: Callable[[Item], float]

    def score(self, view: TextView) -> np.ndarray:
        return np.array([self.measure(item) for item in view.items])


class Reference:
    def score(self, view: TextView) -> np.ndarray:
        pairs = zip(view.references, view.items, strict=True)
        return np.array([reference.nll - item.answer.nll for reference, item in pairs])


MEMBERS = {
    "loss": OfItems(likelihood.mia_loss),
    "min_k": OfItems(likelihood.mia_min_k),
    "min_k_plus_plus": OfItems(likelihood.mia_min_k_plus_plus),
    "reference": Reference(),
    "zlib": OfItems(likelihood.mia_zlib),
}
