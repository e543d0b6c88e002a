"""Defenders of the image game: one module per defender, which ``method`` in params.yaml names.

A module has

- ``Params``: the model of its params entry, derived from `studies.image_game.settings.DefenderParams`,
- ``NEEDS_LEARNED``: whether the defender starts from the model learned on retain and forget set; otherwise the defender
  sees only the retain set,
- ``unlearn(task)``: the unlearned network, from a `Task`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from studies.registry import DEFENDERS

if TYPE_CHECKING:
    from studies.image_game.networks import ResNet
    from studies.image_game.settings import DefenderParams
    from studies.image_game.training import Points


P = TypeVar("P", bound="DefenderParams", covariant=True)


@dataclass(frozen=True)
class Task(Generic[P]):
    """The input of a defender: ``network`` is a copy to change in place, or None; ``learn`` trains afresh.

    ``settings`` is the params entry, checked by the defender's ``Params``.
    """

    network: ResNet | None
    retain: Points
    forget: Points
    learn: Callable[[Points], ResNet]
    settings: P
    seed: int

    @property
    def learned(self) -> ResNet:
        """Return ``network``, which every defender with ``NEEDS_LEARNED`` gets."""
        if self.network is None:
            raise ValueError("a defender without NEEDS_LEARNED gets no learned network")
        return self.network


class DefenderModule(Protocol):
    """A module of this folder."""

    NEEDS_LEARNED: bool

    def unlearn(self, task: Task[DefenderParams]) -> ResNet:
        """Return the unlearned network of ``task``, whose settings are the module's own ``Params``."""


def defender(method: str) -> DefenderModule:
    """Return the defender module of this name."""
    return DEFENDERS[method]
