"""FtFinal: fine-tune the last layer on the retain set and freeze all earlier layers (Goel et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.config.fields import Count, Positive
from studies.image_game.settings import DefenderParams

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from studies.image_game.networks import ResNet
    from studies.image_game.unlearning import Task

NEEDS_LEARNED = True


class Params(DefenderParams):
    """The parameters of FtFinal."""

    lr: Positive
    epochs: Count
    batch: Count


def unlearn(task: Task[Params]) -> ResNet:
    """Return the unlearned network of ``task``."""
    import torch
    from torch.nn.functional import cross_entropy

    from studies.image_game.training import descend

    with torch.no_grad():  # the frozen layers run only once
        features = torch.cat([task.learned.eval().features(part) for part in task.retain.images.split(1024)])

    def loss(rows: np.ndarray) -> Tensor:
        return cross_entropy(task.learned.final(features[rows]), task.retain.labels[rows])

    descend(task.learned, task.learned.final.parameters(), loss, len(features), task.settings, task.seed)
    return task.learned
