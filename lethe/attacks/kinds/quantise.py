"""Weight quantisation: every weight of the linear layers is rounded to the grid of an integer format.

int8 has one scale per output row; smaller formats have one scale per group of weights in a row. Two roundings exist.

``simulated``: the weights lie on the format's grid, and the arithmetic stays float32, so the attack runs on any processor and
needs no further package. Each scale maps the largest magnitude to the format's largest number, symmetrically around zero.

``torchao``: torchao quantises the layers weight-only, holds the integers, and calls its own kernels (the extra ``torchao``).
Its scale maps the largest magnitude to half a step above the format's largest number, and its int8 products are integer
products. `python -m tests.benchmarks torchao` compares both roundings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.attacks import protocol
from lethe.attacks.protocol import AttackParams, Known, changed, linear_weights
from lethe.config.fields import Count
from lethe.errors import BadInput, LetheError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

PER_ROW = 8  # with at least this many bits, one scale serves a whole row


class Params(AttackParams):
    """The formats, the size of a group below 8 bits, and who rounds."""

    kind: Literal["quantise"]
    bits: Annotated[tuple[Literal[8, 4, 3, 2], ...], Field(min_length=1)] = (8, 4)
    group: Count = 64
    rounding: Literal["simulated", "torchao"] = "simulated"


class Attack(protocol.Attack[Params], params=Params):
    """Quantise the weights. The budget is the number of bits removed from each weight: 24 for int8, 28 for 4 bits."""

    budget = "bits taken per weight"

    def attacked(self, model: PreTrainedModel, known: Known, seed: int) -> Iterator[tuple[float, PreTrainedModel]]:
        budgets = sorted(32 - bits for bits in self.params.bits)
        if self.params.rounding == "torchao":
            return by_torchao(model, budgets, self.params.group)

        def rounded(weights: torch.Tensor, taken: float) -> torch.Tensor:
            bits = 32 - int(taken)
            return on_grid(weights, bits, weights.shape[-1] if bits >= PER_ROW else self.params.group)

        return changed(model, budgets, rounded)


def on_grid(weights: torch.Tensor, bits: int, group: int) -> torch.Tensor:
    """Return the nearest multiples of each group's scale; the last group of a row may be shorter."""
    from torch.nn.functional import pad

    top, (rows, columns) = 2 ** (bits - 1) - 1, weights.shape
    grouped = pad(weights, (0, -columns % group)).view(rows, -1, group)
    scale = (grouped.abs().amax(-1, keepdim=True) / top).clamp_min(1e-30)
    return ((grouped / scale).round().clamp(-top, top) * scale).view(rows, -1)[:, :columns]


def by_torchao(
    model: PreTrainedModel, budgets: Sequence[float], group: int
) -> Iterator[tuple[float, PreTrainedModel]]:
    """Yield (budget, a copy of the model whose linear layers torchao has quantised)."""
    import copy

    import torch

    try:
        from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
        from torchao.quantization.granularity import PerGroup
    except ImportError:
        raise LetheError(
            "after.rounding torchao: the package torchao is not installed. Install the extra torchao "
            "(pip install 'lethe[torchao]'), or use rounding: simulated."
        ) from None
    widths = {int(weights.shape[-1]) for weights in linear_weights(model)}
    if any(budget > 32 - PER_ROW for budget in budgets) and any(width % group for width in widths):
        raise BadInput(
            f"after.group {group} does not divide the widths of the linear layers "
            f"({', '.join(map(str, sorted(widths)))}), which torchao needs. Choose a divisor, or use rounding: simulated."
        )
    for budget in budgets:
        bits = 32 - int(budget)
        config = (
            Int8WeightOnlyConfig()
            if bits >= PER_ROW
            else IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{bits}"), granularity=PerGroup(group))
        )
        quantised = copy.deepcopy(model)
        last = quantised.get_output_embeddings()
        quantize_(
            quantised,
            config,
            lambda module, _, last=last: isinstance(module, torch.nn.Linear) and module is not last,
        )
        yield budget, quantised.eval()
