"""Gaussian noise of relative size s on the weights of the linear layers: sd = s times the layer's root mean square."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.attacks import protocol
from lethe.attacks.protocol import AttackParams, Known, changed
from lethe.config.fields import Positive

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class Params(AttackParams):
    """The relative sizes, in ascending order."""

    kind: Literal["noise"]
    sizes: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.02, 0.05, 0.1, 0.2)


class Attack(protocol.Attack[Params], params=Params):
    """Replace W by W + s rms(W) G, where G is standard Gaussian and drawn separately for each size."""

    budget = "relative noise"

    def attacked(self, model: PreTrainedModel, known: Known, seed: int) -> Iterator[tuple[float, PreTrainedModel]]:
        import torch

        generator = torch.Generator().manual_seed(seed)

        def noisy(weights: torch.Tensor, size: float) -> torch.Tensor:
            drawn = torch.randn(weights.shape, generator=generator).to(weights)
            return weights + size * weights.square().mean().sqrt() * drawn

        return changed(model, self.params.sizes, noisy)
