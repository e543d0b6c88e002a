"""None: the learned model without a change, the baseline that unlearns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies.image_game.settings import DefenderParams

if TYPE_CHECKING:
    from studies.image_game.networks import ResNet
    from studies.image_game.unlearning import Task

NEEDS_LEARNED = True


class Params(DefenderParams):
    """No parameters beyond the name of the method."""


def unlearn(task: Task[Params]) -> ResNet:
    """Return the learned network without a change."""
    return task.learned
