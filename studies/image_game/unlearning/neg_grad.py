"""NegGrad: ascend the loss on the forget set while descending the loss on the retain set (Golatkar et al. 2020).

Each step takes a forget batch and a random retain batch, and descends ``retain_weight`` times the retain loss minus the
forget loss. A weight of 0 is plain gradient ascent. The size of the forget set decides the number of steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.config.fields import Count, Positive, Weight
from studies.image_game.settings import DefenderParams

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from studies.image_game.networks import ResNet
    from studies.image_game.unlearning import Task

NEEDS_LEARNED = True


class Params(DefenderParams):
    """The parameters of NegGrad."""

    lr: Positive
    epochs: Count
    batch: Count
    retain_weight: Weight


def unlearn(task: Task[Params]) -> ResNet:
    """Return the unlearned network of ``task``."""
    import numpy as np
    from torch.nn.functional import cross_entropy

    from studies.image_game.training import descend

    network, retain, forget, settings = task.learned, task.retain, task.forget, task.settings
    draws = np.random.default_rng([task.seed, 1])

    def loss(rows: np.ndarray) -> Tensor:
        climbed = -cross_entropy(network(forget.images[rows]), forget.labels[rows])
        if not settings.retain_weight:
            return climbed
        kept = draws.integers(len(retain), size=settings.batch)
        return climbed + settings.retain_weight * cross_entropy(network(retain.images[kept]), retain.labels[kept])

    descend(network, network.parameters(), loss, len(forget), settings, task.seed)
    return network
