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
    """A feed-forward network: the width of each hidden layer, none for a linear model."""

    hidden: list[Count]


class Optimiser(Section):
    """SGD: the learning rate, and the share of the step before that each step keeps."""

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
        """The strategies that a picture shows in one colour."""
        return "no DP" if self.epsilon is None else f"DP, ε = {self.epsilon:g}"

    @property
    def name(self) -> str:
        if self.epsilon is None:
            return plural(self.epochs, "epoch", "epochs")
        clipped = "single records"
        if self.microbatches:
            clipped = plural(self.microbatches, "microbatch", "microbatches")
        return f"ε {self.epsilon:g}, clip {self.clip:g}, batch {self.batch}, {clipped}"


@dataclass(frozen=True)
class Classification:
    """Training set and population: each has features (n, d) float32 and labels (n,) int64 in 0..``classes``-1."""

    train: tuple[np.ndarray, np.ndarray]
    population: tuple[np.ndarray, np.ndarray]
    classes: int
    note: str


class Recipe(NamedTuple):
    """How one run is trained; ``seed`` is of its first weights and of the order of its batches."""

    lr: float
    momentum: float
    epochs: int
    batch: int
    seed: int


def build(inputs: int, hidden: Sequence[int], classes: int, seed: int) -> nn.Sequential:
    """A fresh network from features (batch, inputs) to logits (batch, classes); torch's global seed has no part in it."""
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width_before = inputs
        for width in hidden:
            layers += [nn.Linear(width_before, width), nn.ReLU()]
            width_before = width
        layers.append(nn.Linear(width_before, classes))
    return nn.Sequential(*layers)


def learn(network: nn.Module, features: Tensor, labels: Tensor, recipe: Recipe) -> nn.Module:
    """Train by plain SGD on features (n, d) and labels (n,), and return the same network."""
    optimiser = torch.optim.SGD(network.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    rng = np.random.default_rng(recipe.seed)
    for _, rows in batches(len(labels), recipe.batch, recipe.epochs, rng):
        _step(optimiser, network, features[rows], labels[rows])
    return network.eval()


def _step(
    optimiser: torch.optim.Optimizer, network: nn.Module, features: Tensor, labels: Tensor
) -> None:
    """One step down the mean cross-entropy of a batch."""
    optimiser.zero_grad(set_to_none=True)
    cross_entropy(network(features), labels).backward()
    optimiser.step()


@torch.inference_mode()
def logits(network: nn.Module, features: Tensor) -> np.ndarray:
    """The (n, classes) logits in float64, computed 4,096 rows at a time."""
    network.eval()
    blocks = [network(block) for block in features.split(4096)]
    return torch.cat(blocks).double().numpy()


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
            random = self.generator
            group = torch.randint(microbatches, (rows,), generator=random, device=random.device)
            member = one_hot(group, microbatches).T.float()  # (microbatches, rows)
            sizes = member.sum(dim=1, keepdim=True)
            self.member = member / sizes.clamp(min=1)
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
    """Train one run of a strategy; write into ``place`` the losses of both sides, and the utility on them."""
    torch.set_num_threads(1)
    sides = {"train": data.train, "population": data.population}
    tensors = {name: torch.from_numpy(features) for name, (features, _) in sides.items()}
    labels = torch.from_numpy(data.train[1])

    seed_of_run = int(np.random.SeedSequence([seed, run]).generate_state(1)[0] >> 1)
    inputs = tensors["train"].shape[1]
    network = build(inputs, architecture.hidden, data.classes, seed_of_run)
    recipe = Recipe(optimiser.lr, optimiser.momentum, strategy.epochs, strategy.batch, seed_of_run)
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

    losses = {}
    utility = {}
    for name, (_, true_labels) in sides.items():
        outputs = logits(network, tensors[name])
        losses[name] = negative_logits(outputs, true_labels)
        utility[name] = _utility(outputs, true_labels)
    with atomic_folder(place) as folder:
        np.savez(folder / LOSSES, train=losses["train"], population=losses["population"])
        write_json(folder / UTILITY, utility)


def _utility(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The AUROC of two classes, or the accuracy of more, from logits (n, classes)."""
    if outputs.shape[1] == 2:
        margin = outputs[:, 1] - outputs[:, 0]
        return auc(margin[labels == 1], margin[labels == 0])
    is_right = outputs.argmax(axis=1) == labels
    return float(is_right.mean())
