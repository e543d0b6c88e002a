"""Attacks on the weights of the linear layers: Gaussian noise, pruning by magnitude, and quantisation.

- ``noise`` of relative size s: sd = s times the layer's root mean square.
- ``prune``: in each layer, the given share of weights with the smallest magnitude becomes zero.
- ``quantise``: every weight is rounded to the grid of an integer format. int8 has one scale per output row; smaller formats
  have one scale per group of weights in a row. Two roundings exist.

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

from lethe.attacks.protocol import Attack, AttackParams, Known, changed, linear_weights
from lethe.config.fields import Count, Positive, Real
from lethe.errors import BadInput, LetheError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Attacked = Iterator[tuple[float, "PreTrainedModel"]]
PER_ROW = 8  # with at least this many bits, one scale serves a whole row


class QuantiseParams(AttackParams):
    """The formats, the size of a group below 8 bits, and who rounds."""

    kind: Literal["quantise"]
    bits: Annotated[tuple[Literal[8, 4, 3, 2], ...], Field(min_length=1)] = (8, 4)
    group: Count = 64
    rounding: Literal["simulated", "torchao"] = "simulated"


class Quantise(Attack[QuantiseParams], params=QuantiseParams):
    """Quantise the weights. The budget is the number of bits removed from each weight: 24 for int8, 28 for 4 bits."""

    budget = "bits taken per weight"

    def attacked(self, model: PreTrainedModel, known: Known, seed: int) -> Attacked:
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


def by_torchao(model: PreTrainedModel, budgets: Sequence[float], group: int) -> Attacked:
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


class NoiseParams(AttackParams):
    """The relative sizes, in ascending order."""

    kind: Literal["noise"]
    sizes: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.02, 0.05, 0.1, 0.2)


class Noise(Attack[NoiseParams], params=NoiseParams):
    """Replace W by W + s rms(W) G, where G is standard Gaussian and drawn separately for each size."""

    budget = "relative noise"

    def attacked(self, model: PreTrainedModel, known: Known, seed: int) -> Attacked:
        import torch

        generator = torch.Generator().manual_seed(seed)

        def noisy(weights: torch.Tensor, size: float) -> torch.Tensor:
            drawn = torch.randn(weights.shape, generator=generator).to(weights)
            return weights + size * weights.square().mean().sqrt() * drawn

        return changed(model, self.params.sizes, noisy)


class PruneParams(AttackParams):
    """The shares, in ascending order."""

    kind: Literal["prune"]
    shares: Annotated[tuple[Annotated[Real, Field(gt=0, lt=1)], ...], Field(min_length=1)] = (0.05, 0.1, 0.2, 0.4)


class Prune(Attack[PruneParams], params=PruneParams):
    """Prune each layer separately; among equal magnitudes, the earlier weight is pruned first."""

    budget = "share of weights pruned"

    def attacked(self, model: PreTrainedModel, known: Known, seed: int) -> Attacked:
        return changed(model, self.params.shares, pruned)


def pruned(weights: torch.Tensor, share: float) -> torch.Tensor:
    """The weights with the share of smallest magnitude set to zero, rounded to a whole number of weights."""
    flat = weights.flatten().clone()
    flat[flat.abs().argsort(stable=True)[: round(share * flat.numel())]] = 0
    return flat.view_as(weights)


MEMBERS = {"noise": Noise, "prune": Prune, "quantise": Quantise}
