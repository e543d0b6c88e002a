"""One trained run of a landscape: its losses on members and non-members, and its utility.

This module imports all code that decides a run. A run's key therefore holds the code of this module and not of the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.atomic import atomic_folder
from lethe.io.json_files import write_json
from lethe.statistics.membership import auc

if TYPE_CHECKING:
    from studies.landscape.classification import Classification
    from studies.landscape.settings import LandscapeSettings

LOSSES, UTILITY = "losses.npz", "utility.json"


@dataclass(frozen=True)
class Strategy:
    """One way to train: a baseline (``epsilon`` and ``clip`` are None) or DP-SGD.

    ``microbatches`` is None where every record's gradient is clipped separately.
    """

    epochs: int
    batch: int
    epsilon: float | None = None
    clip: float | None = None
    microbatches: int | None = None

    @property
    def group(self) -> str:
        """The group of the strategy: no DP, or one epsilon."""
        return "no DP" if self.epsilon is None else f"DP, ε = {self.epsilon:g}"

    @property
    def name(self) -> str:
        """The full name of the strategy, with all settings that define it."""
        if self.epsilon is None:
            return _count(self.epochs, "epoch")
        groups = "single records" if self.microbatches is None else _count(self.microbatches, "microbatch", "es")
        return f"ε {self.epsilon:g}, clip {self.clip:g}, batch {self.batch}, {groups}"


def make(
    data: Classification, settings: LandscapeSettings, delta: float, strategy: Strategy, run: int, place: Path
) -> None:
    """Train one model and write its losses and its utility into the folder ``place``."""
    import torch

    from studies.landscape.classifier import build, learn, logits, negative_logits
    from studies.landscape.private_classifier import Budget, learn_privately

    torch.set_num_threads(1)
    sides = {"train": data.train, "population": data.population}
    tensors = {name: torch.from_numpy(features) for name, (features, _) in sides.items()}
    seed = int(np.random.SeedSequence([settings.seed, run]).generate_state(1)[0] >> 1)
    network = build(tensors["train"].shape[1], settings.network.hidden, data.classes, seed)
    recipe = {**settings.optimiser.model_dump(), "epochs": strategy.epochs, "batch": strategy.batch, "seed": seed}
    labels = torch.from_numpy(data.train[1])
    if strategy.epsilon is None or strategy.clip is None:
        learn(network, tensors["train"], labels, **recipe)
    else:
        budget = Budget(strategy.epsilon, delta, strategy.clip, strategy.microbatches)
        learn_privately(network, tensors["train"], labels, budget, **recipe)
    outputs = {name: logits(network, features, label=name) for name, features in tensors.items()}
    losses = {name: negative_logits(outputs[name], sides[name][1]) for name in sides}
    useful = {name: _utility(outputs[name], sides[name][1]) for name in sides}
    with atomic_folder(place) as folder:
        np.savez(folder / LOSSES, train=losses["train"], population=losses["population"])
        write_json(folder / UTILITY, useful)


def _utility(outputs: np.ndarray, labels: np.ndarray) -> float:
    """Return the AUROC for two classes, else the accuracy."""
    if outputs.shape[1] == 2:
        margin = outputs[:, 1] - outputs[:, 0]
        return auc(margin[labels == 1], margin[labels == 0])
    return float((outputs.argmax(axis=1) == labels).mean())


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{plural if number > 1 else ''}"
