"""RetrFinal: reinitialise the last layer, train it on the retain set and freeze all earlier layers (Goel et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies.image_game.unlearning import ft_final

if TYPE_CHECKING:
    from studies.image_game.networks import ResNet
    from studies.image_game.unlearning import Task

NEEDS_LEARNED = True
Params = ft_final.Params


def unlearn(task: Task[ft_final.Params]) -> ResNet:
    """Return the unlearned network of ``task``."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(task.seed)
        task.learned.final.reset_parameters()
    return ft_final.unlearn(task)
