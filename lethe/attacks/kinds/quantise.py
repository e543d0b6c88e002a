"""Weight quantisation: every weight of the linear layers is rounded to the grid of an integer format.

The quantisation is simulated: the weights lie on the format's grid, and the arithmetic stays float32, so the attack runs on
any processor. int8 has one scale per output row; smaller formats have one scale per group of weights in a row. Each scale
maps the largest magnitude to the format's largest number, symmetrically around zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.attacks import protocol
from lethe.attacks.protocol import AttackParams, Known
from lethe.attacks.weights import changed
from lethe.config.fields import Count

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

PER_ROW = 8  # with at least this many bits, one scale serves a whole row


class Params(AttackParams):
    """The formats, and the size of a group below 8 bits."""

    kind: Literal["quantise"]
    bits: Annotated[tuple[Literal[8, 4, 3, 2], ...], Field(min_length=1)] = (8, 4)
    group: Count = 64


class Attack(protocol.Attack[Params], params=Params):
    """Quantise the weights. The budget is the number of bits removed from each weight: 24 for int8, 28 for 4 bits."""

    budget = "bits taken per weight"

    def attacked(self, model: PreTrainedModel, known: Known, seed: int) -> Iterator[tuple[float, PreTrainedModel]]:
        def rounded(weights: torch.Tensor, taken: float) -> torch.Tensor:
            bits = 32 - int(taken)
            return on_grid(weights, bits, weights.shape[-1] if bits >= PER_ROW else self.params.group)

        return changed(model, sorted(32 - bits for bits in self.params.bits), rounded)


def on_grid(weights: torch.Tensor, bits: int, group: int) -> torch.Tensor:
    """Return the nearest multiples of each group's scale; the last group of a row may be shorter.

    Parameters
    ----------
    bits
        Bits per weight, at least 2; the largest multiple is 2^(bits - 1) - 1.
    group
        The number of neighbouring weights of a row that share one scale.
    weights
        Shape (rows, columns).
    """
    from torch.nn.functional import pad

    top, (rows, columns) = 2 ** (bits - 1) - 1, weights.shape
    grouped = pad(weights, (0, -columns % group)).view(rows, -1, group)
    scale = (grouped.abs().amax(-1, keepdim=True) / top).clamp_min(1e-30)
    return ((grouped / scale).round().clamp(-top, top) * scale).view(rows, -1)[:, :columns]
