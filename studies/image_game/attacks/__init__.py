"""Adversaries of the unlearning game: one module per adversary, which ``attacks`` of params.yaml names.

A module has ``fit(shadows, seed)``, which returns an adversary with

- ``score(view)``: (n,) float64, higher where the model more probably learned the point,
- ``accept(view)``: (n,) in [0, 1], the probability that the adversary says "forget".

The game fits an adversary **once**, on shadow models and the shadow half of the data, which is disjoint from every forget
and test set. The fitted adversary attacks both halves of every swapped pair. An attack refitted on each split would
find chance differences even in a retrained model.

All attacks here are weak (one draw from the oracle: the answer on a point ignores the other points) and black-box.
The interface also serves stronger attacks. The game calls ``accept`` once per oracle with all points, so an adversary
with many queries can answer all points with one probability; a white-box adversary reads the weights in ``view.model``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from scipy.special import log_softmax

from lethe.audits.unlearning_game.adversaries import Adversary, Shadow
from studies.registry import ATTACKS


@dataclass(frozen=True)
class View:
    """An adversary's view of one image model on n points.

    ``logits`` (n, classes), ``labels`` (n,). ``reference`` (shadow models, n, classes): the logits of the shadow
    models on the same points, NaN where a shadow model learned the point. ``model``: folder of the weights.
    """

    logits: np.ndarray
    labels: np.ndarray
    reference: np.ndarray
    model: Path | None = None

    @property
    def log_probabilities(self) -> np.ndarray:
        """The (n, classes) log-probabilities of the logits."""
        return log_softmax(self.logits.astype(np.float64), axis=-1)


class AttackModule(Protocol):
    """A module of this folder."""

    def fit(self, shadows: Sequence[Shadow[View]], seed: int) -> Adversary[View]:
        """Return the adversary, fitted on the shadow models."""


def attack(name: str) -> AttackModule:
    """Return the attack module of this name."""
    return ATTACKS[name]
