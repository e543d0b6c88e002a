"""Retrain: learn afresh on the retain set alone, the gold standard."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.learning.image_networks import ResNet
    from stages.learning.image_unlearning import Task

REQUIRES = ()
NEEDS_LEARNED = False


def unlearn(task: Task) -> ResNet:
    return task.learn(task.retain)
