"""None: the learned model without a change, the baseline that unlearns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.audits.unlearning_game.images.settings import DefenderParams

if TYPE_CHECKING:
    from lethe.audits.unlearning_game.images.networks import ResNet
    from lethe.audits.unlearning_game.images.unlearning import Task

NEEDS_LEARNED = True


class Params(DefenderParams):
    """No parameters beyond the name of the method."""


def unlearn(task: Task[Params]) -> ResNet:
    """Return the learned network without a change."""
    return task.learned
