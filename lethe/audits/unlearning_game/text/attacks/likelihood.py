"""Attacks on the likelihood of the answers.

- ``loss``: the mean log-probability per token (Yeom et al. 2018), and ``zlib``: the same per compressed byte (Carlini et al.
  2021).
- ``min_k``: the mean log-probability of the least likely tokens (Shi et al. 2024), and ``min_k_plus_plus``: the same of
  standardised log-probabilities (Zhang et al. 2024).
- ``reference``: the mean log-probability per token minus that of a model that never saw the answer, in nats (Carlini et al.
  2021).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lethe.audits.unlearning_game.text.attacks import TextView
from lethe.scoring import likelihood as membership
from lethe.scoring.likelihood import Item


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
    "loss": OfItems(membership.mia_loss),
    "min_k": OfItems(membership.mia_min_k),
    "min_k_plus_plus": OfItems(membership.mia_min_k_plus_plus),
    "reference": Reference(),
    "zlib": OfItems(membership.mia_zlib),
}
