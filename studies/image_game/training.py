"""Training of image classifiers: plain SGD, or DP-SGD with a privacy budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lethe.data.images import Images
from lethe.models.dp_sgd import make_private, noise_multiplier
from lethe.models.training import batches
from studies.image_game.networks import ResNet, build

if TYPE_CHECKING:
    from studies.image_game.settings import ImageLearning, Privacy


class Points(NamedTuple):
    """Labelled images: (n, channels, height, width) float32 and (n,) int64."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


def points(images: Images, rows: np.ndarray, labels: np.ndarray | None = None) -> Points:
    """Return rows of a data set, pixels scaled to [-1, 1]."""
    pixels = torch.from_numpy(images.pixels[rows]).to(device()).float() * (2 / images.white) - 1
    return Points(pixels, torch.from_numpy((images.labels if labels is None else labels)[rows]).to(device()))


def device() -> torch.device:
    """Return the device of the networks and images of this process."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def learn(data: Points, classes: int, recipe: ImageLearning, privacy: Privacy | None, seed: int) -> ResNet:
    """Train a fresh network; equal arguments give equal weights on the CPU."""
    network = build(recipe.network, data.images.shape[1], classes, seed, privacy is not None).to(device())
    if privacy is not None:
        return _learn_privately(network, data, recipe, privacy, seed)
    optimiser = _optimiser(network.parameters(), recipe)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, recipe.milestones)
    network.train()
    order = batches(len(data), recipe.batch, recipe.epochs, np.random.default_rng(seed))
    last = 0
    for epoch, rows in order:
        if epoch != last:
            schedule.step()
            last = epoch
        if len(rows) > 1:  # batch norm cannot learn from a batch of one
            _step(optimiser, cross_entropy(network(data.images[rows]), data.labels[rows]))
    return network.eval()


def _learn_privately(network: ResNet, data: Points, recipe: ImageLearning, privacy: Privacy, seed: int) -> ResNet:
    """Train by DP-SGD; the noise follows from the budget for the whole training."""
    network.train()
    passes = math.ceil(len(data) / min(recipe.batch, len(data)))
    private, optimiser, loader = make_private(
        network,
        _optimiser(network.parameters(), recipe),
        data,
        sample_rate=1 / passes,
        noise_multiplier=noise_multiplier(privacy.epsilon, privacy.delta, 1 / passes, recipe.epochs * passes),
        clip=privacy.clip,
        seed=seed,
    )
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, recipe.milestones)
    for _ in range(recipe.epochs):
        for images, labels in loader:
            _step(optimiser, cross_entropy(private(images), labels))
        schedule.step()
    private.remove_hooks()
    return network.eval()


class Descent(Protocol):
    """The settings of `descend`, in the params of every defender that uses it."""

    @property
    def lr(self) -> float: ...
    @property
    def epochs(self) -> int: ...
    @property
    def batch(self) -> int: ...


def descend(
    network: ResNet,
    parameters: Iterable[nn.Parameter],
    loss: Callable[[np.ndarray], Tensor],
    rows: int,
    settings: Descent,
    seed: int,
) -> None:
    """Change parameters by SGD with momentum; batch norm keeps the learned statistics."""
    network.eval()
    optimiser = torch.optim.SGD(list(parameters), lr=settings.lr, momentum=0.9)
    for _, picked in batches(rows, settings.batch, settings.epochs, np.random.default_rng(seed)):
        _step(optimiser, loss(picked))


@torch.inference_mode()
def logits(network: nn.Module, images: Images, size: int = 1024) -> np.ndarray:
    """Return the (n, classes) float32 logits of all images of the data set."""
    rows = np.arange(len(images))
    parts = [network(points(images, rows[start : start + size]).images) for start in range(0, len(rows), size)]
    return torch.cat(parts).cpu().numpy()


def _optimiser(parameters: Iterable[nn.Parameter], recipe: ImageLearning) -> torch.optim.Optimizer:
    kind = {"sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop}[recipe.optimiser]
    return kind(parameters, lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)


def _step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
