"""Residual networks for small images (He et al. 2016), built by name.

``resnet8``, ``resnet14``, ``resnet20``: the CIFAR family of depth 6 n + 2, three stages of n basic blocks, width
16, 32, 64. ``resnet18``: four stages of two basic blocks, width 64 to 512, with the 3x3 stem that suits 32x32
pixels. No layer works in place, because per-sample gradients (DP-SGD, Fisher information) do not allow that.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lethe.errors import BadValue

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
        """Return the output of the block."""
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
        """Return the input of the last layer: (batch, width of the last stage)."""
        return self.stages(self.stem(images)).mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
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
