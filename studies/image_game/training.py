"""Residual networks for small images (He et al. 2016), and their training: plain SGD, or DP-SGD with a privacy budget.

``resnet8``, ``resnet14``, ``resnet20``: the CIFAR family of depth 6 n + 2, three stages of n basic blocks, width
16, 32, 64. ``resnet18``: four stages of two basic blocks, width 64 to 512, with the 3x3 stem that suits 32x32
pixels. No layer works in place, because per-sample gradients (DP-SGD, Fisher information) do not allow that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lethe.data.images import Images
from lethe.errors import BadValue
from lethe.models.dp_sgd import make_private, noise_multiplier
from lethe.models.training import batches

if TYPE_CHECKING:
    from studies.image_game.play import ImageLearning, Privacy
    from studies.image_game.unlearning import Descent


# name -> (blocks per stage, width of the first stage); each later stage doubles the width and halves the image
NETWORKS = {
    "resnet8": ((1, 1, 1), 16),
    "resnet14": ((2, 2, 2), 16),
    "resnet20": ((3, 3, 3), 16),
    "resnet18": ((2, 2, 2, 2), 64),
}


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut; the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, images: Tensor) -> Tensor:
        out = torch.relu(self.first_norm(self.first(images)))
        return torch.relu(self.second_norm(self.second(out)) + self.shortcut(images))


class ResNet(nn.Module):
    """A network from (batch, channels, height, width) to logits (batch, classes); the last layer is ``final``."""

    def __init__(self, blocks: tuple[int, ...], width: int, channels: int, classes: int):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        layers, inputs = [], width
        for stage, count in enumerate(blocks):
            outputs = width * 2**stage
            for block in range(count):
                layers.append(Block(inputs, outputs, stride=2 if stage > 0 and block == 0 else 1))
                inputs = outputs
        self.stages = nn.Sequential(*layers)
        self.final = nn.Linear(inputs, classes)

    def features(self, images: Tensor) -> Tensor:
        return self.stages(self.stem(images)).mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.final(self.features(images))


def build(name: str, channels: int, classes: int, seed: int, private: bool = False) -> ResNet:
    """Build a freshly initialised network; equal arguments give equal weights, whatever torch's global seed is."""
    if name not in NETWORKS:
        raise BadValue("network", name, f"one of {', '.join(NETWORKS)}")
    blocks, width = NETWORKS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ResNet(blocks, width, channels, classes)
        if not private:
            return network
        from opacus.validators import ModuleValidator

        return ModuleValidator.fix(network)


class Points(NamedTuple):
    """Labelled images: (n, channels, height, width) float32 and (n,) int64."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


def points(images: Images, rows: np.ndarray, labels: np.ndarray | None = None) -> Points:
    pixels = torch.from_numpy(images.pixels[rows]).to(device()).float() * (2 / images.white) - 1
    return Points(pixels, torch.from_numpy((images.labels if labels is None else labels)[rows]).to(device()))


def device() -> torch.device:
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
