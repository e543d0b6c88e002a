"""One trained run of a landscape: a feed-forward classifier learned plainly or by DP-SGD, its losses and its utility.

This module imports all code that decides a run. A run's key therefore holds the code of this module and not of the study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from lethe.config.fields import Count, Positive, Section
from lethe.errors import LibraryChanged, plural
from lethe.io.files import atomic_folder, write_json
from lethe.models.dp_sgd import make_private, noise_multiplier
from lethe.models.training import batches
from lethe.statistics.two_sample import auc

if TYPE_CHECKING:
    from opacus.optimizers import DPOptimizer

LOSSES = "losses.npz"
UTILITY = "utility.json"


class Network(Section):
    hidden: list[Count]


class Optimiser(Section):
    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class Strategy:
    """One way to train: a baseline (``epsilon``, ``clip`` None) or DP-SGD; ``microbatches`` None: each record is clipped."""

    epochs: int
    batch: int
    epsilon: float | None = None
    clip: float | None = None
    microbatches: int | None = None

    @property
    def group(self) -> str:
        return "no DP" if self.epsilon is None else f"DP, ε = {self.epsilon:g}"

    @property
    def name(self) -> str:
        if self.epsilon is None:
            return plural(self.epochs, "epoch", "epochs")
        groups = (
            plural(self.microbatches, "microbatch", "microbatches")
            if self.microbatches
            else "single records"
        )
        return f"ε {self.epsilon:g}, clip {self.clip:g}, batch {self.batch}, {groups}"


@dataclass(frozen=True)
class Classification:
    """Training set and population: each has features (n, d) float32 and labels (n,) int64 in 0..``classes``-1."""

    train: tuple[np.ndarray, np.ndarray]
    population: tuple[np.ndarray, np.ndarray]
    classes: int
    note: str


class Recipe(NamedTuple):
    lr: float
    momentum: float
    epochs: int
    batch: int
    seed: int


def build(inputs: int, hidden: Sequence[int], classes: int, seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        return nn.Sequential(*layers, nn.Linear(inputs, classes))


def learn(network: nn.Module, features: Tensor, labels: Tensor, recipe: Recipe) -> nn.Module:
    optimiser = torch.optim.SGD(network.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    for _, rows in batches(
        len(labels), recipe.batch, recipe.epochs, np.random.default_rng(recipe.seed)
    ):
        _step(optimiser, network, features[rows], labels[rows])
    return network.eval()


def _step(
    optimiser: torch.optim.Optimizer, network: nn.Module, features: Tensor, labels: Tensor
) -> None:
    optimiser.zero_grad(set_to_none=True)
    cross_entropy(network(features), labels).backward()
    optimiser.step()


@torch.inference_mode()
def logits(network: nn.Module, features: Tensor) -> np.ndarray:
    network.eval()
    return torch.cat([network(part) for part in features.split(4096)]).double().numpy()


def negative_logits(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The (n,) losses ln(1 - f) - ln f, f the true class's probability, exact where f rounds to 1 (Negoescu, section 3)."""
    outputs = np.asarray(outputs, float)
    rows = np.arange(len(labels))
    others = outputs.copy()
    others[rows, labels] = -np.inf
    return np.logaddexp.reduce(others, axis=1) - outputs[rows, labels]


def learn_privately(
    network: nn.Module,
    features: Tensor,
    labels: Tensor,
    strategy: Strategy,
    delta: float,
    recipe: Recipe,
) -> nn.Module:
    """Train by DP-SGD within the strategy's budget for adding or removing one record; an epoch has int(n / batch) batches.

    One record can reverse the clipped mean gradient of its microbatch, a change of twice the clip, so the noise is doubled.
    (TensorFlow Privacy, which the Epsilon* paper used, does not double the noise.)
    """
    assert strategy.epsilon is not None  # `make` asks only then
    assert strategy.clip is not None
    rate = min(1.0, recipe.batch / len(labels))
    steps = recipe.epochs * int(1 / rate)
    noise = noise_multiplier(strategy.epsilon, delta, rate, steps)
    model, optimiser, loader = make_private(
        network.train(),
        torch.optim.SGD(network.parameters(), lr=recipe.lr, momentum=recipe.momentum),
        (features, labels),
        sample_rate=rate,
        noise_multiplier=noise,
        clip=strategy.clip,
        seed=recipe.seed,
        steps=steps,
    )
    if strategy.microbatches is not None:
        optimiser = grouped(optimiser, strategy.microbatches)
    for inputs, targets in loader:
        _step(optimiser, model, inputs, targets)
    model.remove_hooks()
    return network.eval()


def grouped(optimiser: DPOptimizer, microbatches: int) -> DPOptimizer:
    """The same optimiser, which now clips the mean gradient of each microbatch and doubles the noise.

    Each step draws each record's microbatch anew and independently, so that one record changes one microbatch.
    """
    from opacus.optimizers import DPOptimizer

    # Private, and the only place to group gradients.
    if not hasattr(DPOptimizer, "_get_flat_grad_sample"):
        missing = AttributeError("DPOptimizer._get_flat_grad_sample")
        raise LibraryChanged("opacus", "the gradients of single rows", missing)

    class Grouped(DPOptimizer):
        def pre_step(self, closure: object = None) -> bool | None:
            rows = len(super()._get_flat_grad_sample(self.params[0]))
            group = torch.randint(
                microbatches, (rows,), generator=self.generator, device=self.generator.device
            )
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


def make(
    data: Classification,
    architecture: Network,
    optimiser: Optimiser,
    seed: int,
    delta: float,
    strategy: Strategy,
    run: int,
    place: Path,
) -> None:
    torch.set_num_threads(1)
    sides = {"train": data.train, "population": data.population}
    tensors = {name: torch.from_numpy(features) for name, (features, _) in sides.items()}
    seed = int(np.random.SeedSequence([seed, run]).generate_state(1)[0] >> 1)
    network = build(tensors["train"].shape[1], architecture.hidden, data.classes, seed)
    recipe = Recipe(optimiser.lr, optimiser.momentum, strategy.epochs, strategy.batch, seed)
    labels = torch.from_numpy(data.train[1])
    if strategy.epsilon is None:
        learn(network, tensors["train"], labels, recipe)
    else:
        learn_privately(
            network,
            tensors["train"],
            labels,
            strategy,
            delta,
            recipe,
        )
    outputs = {name: logits(network, features) for name, features in tensors.items()}
    losses = {name: negative_logits(outputs[name], sides[name][1]) for name in sides}
    useful = {name: _utility(outputs[name], sides[name][1]) for name in sides}
    with atomic_folder(place) as folder:
        np.savez(folder / LOSSES, train=losses["train"], population=losses["population"])
        write_json(folder / UTILITY, useful)


def _utility(outputs: np.ndarray, labels: np.ndarray) -> float:
    if outputs.shape[1] == 2:
        margin = outputs[:, 1] - outputs[:, 0]
        return auc(margin[labels == 1], margin[labels == 0])
    return float((outputs.argmax(axis=1) == labels).mean())
