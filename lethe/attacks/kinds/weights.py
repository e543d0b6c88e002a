"""Attacks on the weights: relearning, and on those of the linear layers Gaussian noise, pruning and quantisation.

- ``noise`` of relative size s: sd = s times the layer's root mean square.
- ``prune``: in each layer, the given share of weights with the smallest magnitude becomes zero.
- ``relearn``: some steps of fine-tuning on a few rows; the model is then queried with the other forget questions. Source: Hu
  et al., "Jogging the Memory of Unlearned Models Through Targeted Relearning Attacks" (2024); Łucki et al., "An Adversarial
  Perspective on Machine Unlearning for AI Safety" (2024).
- ``quantise``: every weight is rounded to the grid of an integer format. int8 has one scale per output row; smaller formats
  have one scale per group of weights in a row. Two roundings exist.

``simulated``: the weights lie on the format's grid, and the arithmetic stays float32, so the attack runs on any processor and
needs no further package. Each scale maps the largest magnitude to the format's largest number, symmetrically around zero.

``torchao``: torchao quantises the layers weight-only, holds the integers, and calls its own kernels (the extra ``torchao``).
Its scale maps the largest magnitude to half a step above the format's largest number, and its int8 products are integer
products. `python -m tests.benchmarks torchao` compares both roundings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from lethe.attacks.protocol import (
    Attack,
    Attacked,
    AttackParams,
    Knowledge,
    Ranges,
    changed,
    is_inner,
    linear_weights,
)
from lethe.config.fields import Count, Increasing, Positive, Real
from lethe.errors import BadInput, LetheError
from lethe.io.artifacts import Row
from lethe.models.encoding import collate
from lethe.models.likelihood import forward
from lethe.models.training import Losses

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

PER_ROW = 8  # with at least this many bits, one scale serves a whole row


class QuantiseParams(AttackParams):
    """The formats, the size of a group below 8 bits, and who rounds."""

    kind: Literal["quantise"]
    bits: Annotated[tuple[Literal[8, 4, 3, 2], ...], Field(min_length=1)] = (8, 4)
    group: Count = 64
    rounding: Literal["simulated", "torchao"] = "simulated"


class QuantiseRanges(Ranges):
    """The formats, of which each is drawn equally often; the rounding is simulated."""

    bits: Annotated[tuple[Literal[8, 4, 3, 2], ...], Field(min_length=1)] = (8, 4)
    group: Count = 64

    def drawn(self, rng: np.random.Generator) -> dict[str, object]:
        place = int(rng.integers(len(self.bits)))
        bits = self.bits[place]
        return {"bits": [bits], "group": self.group}


class Quantise(Attack[QuantiseParams], params=QuantiseParams):
    """Quantise the weights. The budget is the number of bits removed from each weight: 24 for int8, 28 for 4 bits."""

    Ranges = QuantiseRanges
    budget = "bits taken per weight"

    def attacked(self, model: PreTrainedModel, knowledge: Knowledge, seed: int) -> Attacked:
        budgets = sorted(32 - bits for bits in self.params.bits)
        if self.params.rounding == "torchao":
            return by_torchao(model, budgets, self.params.group)

        def rounded(weights: torch.Tensor, taken: float) -> torch.Tensor:
            bits = 32 - int(taken)
            group = weights.shape[-1] if bits >= PER_ROW else self.params.group
            return on_grid(weights, bits, group)

        return changed(model, budgets, rounded)


def on_grid(weights: torch.Tensor, bits: int, group: int) -> torch.Tensor:
    """Return the nearest multiples of each group's scale; the last group of a row may be shorter."""
    from torch.nn.functional import pad

    top = 2 ** (bits - 1) - 1
    rows, columns = weights.shape
    grouped = pad(weights, (0, -columns % group)).view(rows, -1, group)
    scale = (grouped.abs().amax(-1, keepdim=True) / top).clamp_min(1e-30)
    return ((grouped / scale).round().clamp(-top, top) * scale).view(rows, -1)[:, :columns]


def by_torchao(model: PreTrainedModel, budgets: Sequence[float], group: int) -> Attacked:
    """Yield (budget, a copy of the model whose linear layers torchao has quantised).

    Raises
    ------
    LetheError
        If torchao is not installed.
    BadInput
        If ``group`` does not divide the width of every layer, which torchao needs below 8 bits.
    """
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
    indivisible = [width for width in widths if width % group]
    if max(budgets) > 32 - PER_ROW and indivisible:
        raise BadInput(
            f"after.group {group} does not divide the widths of the linear layers "
            f"({', '.join(map(str, sorted(widths)))}), which torchao needs. Choose a divisor, or use rounding: simulated."
        )
    for budget in budgets:
        bits = 32 - int(budget)
        if bits >= PER_ROW:
            config = Int8WeightOnlyConfig()
        else:
            number = getattr(torch, f"int{bits}")
            config = IntxWeightOnlyConfig(weight_dtype=number, granularity=PerGroup(group))
        quantised = copy.deepcopy(model)
        last = quantised.get_output_embeddings()
        quantize_(quantised, config, lambda module, _, last=last: is_inner(module, last))
        yield budget, quantised.eval()


class NoiseParams(AttackParams):
    """The standard deviations, relative to each layer's root mean square."""

    kind: Literal["noise"]
    sizes: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.02, 0.05, 0.1, 0.2)


class NoiseRanges(Ranges):
    """The least and the largest size; the logarithm of a size is uniform between them."""

    size: Annotated[tuple[Positive, Positive], Increasing()] = (0.02, 0.2)

    def drawn(self, rng: np.random.Generator) -> dict[str, object]:
        size = log_uniform(rng, self.size)
        return {"sizes": [size]}


class Noise(Attack[NoiseParams], params=NoiseParams):
    """Replace W by W + s rms(W) G, where G is standard Gaussian and drawn separately for each size."""

    Ranges = NoiseRanges
    budget = "relative noise"

    def attacked(self, model: PreTrainedModel, knowledge: Knowledge, seed: int) -> Attacked:
        import torch

        generator = torch.Generator().manual_seed(seed)

        def noisy(weights: torch.Tensor, size: float) -> torch.Tensor:
            drawn = torch.randn(weights.shape, generator=generator).to(weights)
            return weights + size * weights.square().mean().sqrt() * drawn

        return changed(model, self.params.sizes, noisy)


Pruned = Annotated[Real, Field(gt=0, lt=1)]  # of the weights of a layer


class PruneParams(AttackParams):
    """The shares of weights to prune."""

    kind: Literal["prune"]
    shares: Annotated[tuple[Pruned, ...], Field(min_length=1)] = (0.05, 0.1, 0.2, 0.4)


class PruneRanges(Ranges):
    """The least and the largest share; a share is uniform between them."""

    share: Annotated[tuple[Pruned, Pruned], Increasing()] = (0.05, 0.4)

    def drawn(self, rng: np.random.Generator) -> dict[str, object]:
        least, largest = self.share
        share = float(rng.uniform(least, largest))
        return {"shares": [share]}


class Prune(Attack[PruneParams], params=PruneParams):
    """Prune each layer separately; among equal magnitudes, the earlier weight is pruned first."""

    Ranges = PruneRanges
    budget = "share of weights pruned"

    def attacked(self, model: PreTrainedModel, knowledge: Knowledge, seed: int) -> Attacked:
        return changed(model, self.params.shares, pruned)


def pruned(weights: torch.Tensor, share: float) -> torch.Tensor:
    """The weights with the share of smallest magnitude set to zero, rounded to a whole number of weights."""
    flat = weights.flatten().clone()
    flat[flat.abs().argsort(stable=True)[: round(share * flat.numel())]] = 0
    return flat.view_as(weights)


class RelearnParams(AttackParams):
    """The rows, their number (per author for same_authors), and the steps after which the model is queried."""

    kind: Literal["relearn"]
    rows: Literal["forget", "same_authors", "unrelated"]
    count: Count = 5
    steps: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 2, 4, 8, 16)
    batch: Count = 8
    lr: Positive = 5.0e-4


class RelearnRanges(Ranges):
    """The rows, and the least and the largest number of rows and of steps and learning rate.

    The logarithm of each is uniform between its ends; numbers of rows and steps are rounded to whole ones.
    """

    rows: Literal["forget", "same_authors", "unrelated"] = "unrelated"
    count: Annotated[tuple[Count, Count], Increasing()] = (5, 40)
    steps: Annotated[tuple[Count, Count], Increasing()] = (1, 16)
    batch: Count = 8
    lr: Annotated[tuple[Positive, Positive], Increasing()] = (1.0e-4, 1.0e-3)

    def drawn(self, rng: np.random.Generator) -> dict[str, object]:
        count = round(log_uniform(rng, self.count))
        steps = round(log_uniform(rng, self.steps))
        lr = log_uniform(rng, self.lr)
        return {
            "rows": self.rows,
            "count": count,
            "steps": [steps],
            "batch": self.batch,
            "lr": lr,
        }


class Relearn(Attack[RelearnParams], params=RelearnParams):
    """Fine-tune by AdamW at a constant learning rate; one training run covers all budgets."""

    Ranges = RelearnRanges
    budget = "steps of relearning"

    def learned(self, knowledge: Knowledge, seed: int) -> list[Row]:
        """Return the rows: random forget rows, equally many rows of each forget author, or retain rows."""
        rng = np.random.default_rng(seed)
        count = self.params.count
        if self.params.rows == "unrelated":
            return _some(list(knowledge.retain), count, rng)
        if self.params.rows == "forget":
            _leave_some(count, len(knowledge.forget), "forget rows")
            return _some(list(knowledge.forget), count, rng)
        authors: dict[str, list[Row]] = defaultdict(list)
        for row in knowledge.forget:
            author = row.get("author")
            if author is None:
                raise BadInput(
                    f"Row {row['id']!r} of the forget set has no author, but rows: same_authors chooses the rows to "
                    "relearn by author. Add the key author, or use rows: forget or unrelated."
                )
            authors[author].append(row)
        _leave_some(count, max(map(len, authors.values())), "rows of each author")
        learned: list[Row] = []
        for rows in authors.values():
            learned += _some(rows, min(count, len(rows) - 1), rng)
        return learned

    def attacked(self, model: PreTrainedModel, knowledge: Knowledge, seed: int) -> Attacked:
        import torch

        examples = [knowledge.encoder.example(row) for row in self.learned(knowledge, seed)]
        rng = np.random.default_rng([seed, 1])
        lr = self.params.lr
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0.0, fused=True)
        waiting: list[int] = []
        budgets = sorted(set(self.params.steps))
        losses = Losses("relearning", budgets[-1], lr)
        taken: list[torch.Tensor] = []
        for step in range(1, budgets[-1] + 1):
            if not waiting:
                waiting = rng.permutation(len(examples)).tolist()
            picked = [examples[row] for row in waiting[: self.params.batch]]
            waiting = waiting[self.params.batch :]
            model.train()
            optimizer.zero_grad(set_to_none=True)
            loss = forward(model, collate(picked, knowledge.padding, model.device)).nll
            loss.backward()
            optimizer.step()
            taken.append(loss.detach())
            if step in budgets:
                # The device computes on until a budget, where sampling waits for it anyway.
                for number, value in enumerate(taken, step - len(taken)):
                    losses.add(number, float(value))
                losses.check(trained)
                taken.clear()
                yield step, model.eval()


def log_uniform(rng: np.random.Generator, ends: tuple[float, float]) -> float:
    """Return a number whose logarithm is uniform between those of two positive ends."""
    low, high = np.log(ends)
    return float(np.exp(rng.uniform(low, high)))


def _some(rows: list[Row], count: int, rng: np.random.Generator) -> list[Row]:
    """Up to ``count`` random rows, in their order."""
    return [rows[place] for place in sorted(rng.permutation(len(rows))[:count])]


def _leave_some(count: int, available: int, what: str) -> None:
    if count >= available:
        raise BadInput(
            f"Relearning on {count} of {available} {what} leaves no question to evaluate: count must be below {available}."
        )


MEMBERS = {"noise": Noise, "prune": Prune, "quantise": Quantise, "relearn": Relearn}
