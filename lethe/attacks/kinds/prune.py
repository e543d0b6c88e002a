"""Pruning by magnitude: in each linear layer, the given share of weights with the smallest magnitude becomes zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.attacks import protocol
from lethe.attacks.protocol import AttackParams, Known, changed
from lethe.config.fields import Real

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class Params(AttackParams):
    """The shares, in ascending order."""

    kind: Literal["prune"]
    shares: Annotated[tuple[Annotated[Real, Field(gt=0, lt=1)], ...], Field(min_length=1)] = (0.05, 0.1, 0.2, 0.4)


class Attack(protocol.Attack[Params], params=Params):
    """Prune each layer separately; among equal magnitudes, the earlier weight is pruned first."""

    budget = "share of weights pruned"

    def attacked(self, model: PreTrainedModel, known: Known, seed: int) -> Iterator[tuple[float, PreTrainedModel]]:
        return changed(model, self.params.shares, pruned)


def pruned(weights: torch.Tensor, share: float) -> torch.Tensor:
    """Return the weights with the share of smallest magnitude set to zero, rounded to a whole number of weights."""
    flat = weights.flatten().clone()
    flat[flat.abs().argsort(stable=True)[: round(share * flat.numel())]] = 0
    return flat.view_as(weights)
