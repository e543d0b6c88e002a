"""Retrain: train afresh on the retain set only, the gold standard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies.image_game.settings import DefenderParams

if TYPE_CHECKING:
    from studies.image_game.networks import ResNet
    from studies.image_game.unlearning import Task

NEEDS_LEARNED = False


class Params(DefenderParams):
    """No parameters beyond the name of the method."""


def unlearn(task: Task[Params]) -> ResNet:
    """Return a network trained afresh on the retain set."""
    return task.learn(task.retain)
