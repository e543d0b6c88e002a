"""Classifiers trained by DP-SGD within a budget, with gradients clipped per record or per microbatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from lethe.errors import LibraryChanged
from lethe.models.dp_sgd import make_private, noise_multiplier

if TYPE_CHECKING:
    from opacus.optimizers import DPOptimizer


@dataclass(frozen=True)
class Budget:
    """The budget (``epsilon``, ``delta``) for adding or removing one record; gradients are clipped to the norm ``clip``.

    ``microbatches`` is the number of groups in a batch. DP-SGD clips the mean gradient of each group, or every record's
    gradient where ``microbatches`` is None. One record can reverse the clipped mean of its group, a change of twice the
    clip, so the noise is doubled. (TensorFlow Privacy, which the Epsilon* paper used, does not double the noise.)
    """

    epsilon: float
    delta: float
    clip: float
    microbatches: int | None = None


def learn_privately(
    network: nn.Module,
    features: Tensor,
    labels: Tensor,
    budget: Budget,
    *,
    lr: float,
    momentum: float,
    epochs: int,
    batch: int,
    seed: int,
) -> nn.Module:
    """Train by DP-SGD; an epoch has int(n / batch) batches. Further parameters are those of `landscape.classifier.learn`."""
    rate = min(1.0, batch / len(labels))
    steps = epochs * int(1 / rate)
    noise = noise_multiplier(budget.epsilon, budget.delta, rate, steps)
    model, optimiser, loader = make_private(
        network.train(),
        torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum),
        (features, labels),
        sample_rate=rate,
        noise_multiplier=noise,
        clip=budget.clip,
        seed=seed,
        steps=steps,
    )
    if budget.microbatches is not None:
        optimiser = grouped(optimiser, budget.microbatches)
    for inputs, targets in loader:
        optimiser.zero_grad(set_to_none=True)
        cross_entropy(model(inputs), targets).backward()
        optimiser.step()
    model.remove_hooks()
    return network.eval()


def grouped(optimiser: DPOptimizer, microbatches: int) -> DPOptimizer:
    """Return the same optimiser, which now clips the mean gradient of each microbatch and doubles the noise.

    Each step draws the microbatch of each record again, independently of the other records, so that adding or removing one
    record changes one microbatch.
    """
    from opacus.optimizers import DPOptimizer

    if not hasattr(DPOptimizer, "_get_flat_grad_sample"):  # private, and the only place to group gradients
        missing = AttributeError("DPOptimizer._get_flat_grad_sample")
        raise LibraryChanged("opacus", "the gradients of single rows", missing)

    class Grouped(DPOptimizer):
        def pre_step(self, closure: object = None) -> bool | None:
            rows = len(super()._get_flat_grad_sample(self.params[0]))
            group = torch.randint(microbatches, (rows,), generator=self.generator, device=self.generator.device)
            member = one_hot(group, microbatches).T.float()
            self.member = member / member.sum(dim=1, keepdim=True).clamp(min=1)
            return super().pre_step(closure)

        def _get_flat_grad_sample(self, p: Tensor) -> Tensor:
            return torch.einsum("gi,i...->g...", self.member, super()._get_flat_grad_sample(p))

    return Grouped(
        optimiser.original_optimizer,
        noise_multiplier=2 * optimiser.noise_multiplier,
        max_grad_norm=optimiser.max_grad_norm,
        expected_batch_size=microbatches,
        generator=optimiser.generator,
    )
