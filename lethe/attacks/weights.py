"""The shared code of attacks on the weights: each budget starts from the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from lethe.attacks.protocol import linear_weights

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def changed(
    model: PreTrainedModel, budgets: Sequence[float], change: Callable[[torch.Tensor, float], torch.Tensor]
) -> Iterator[tuple[float, PreTrainedModel]]:
    """Yield (budget, model) with the weights of every linear layer replaced."""
    import torch

    weights = linear_weights(model)
    before = [one.detach().clone() for one in weights]
    for budget in budgets:
        with torch.no_grad():
            for one, old in zip(weights, before, strict=True):
                one.copy_(change(old, budget))
        yield budget, model.eval()
