"""Feed-forward classifiers of tables, and the losses that Epsilon* reads of any PyTorch classifier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lethe.models.training import batches
from lethe.progress import progress


def build(inputs: int, hidden: Sequence[int], classes: int, seed: int) -> nn.Sequential:
    """Build fully connected layers with ReLU between them; equal seeds give equal weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        return nn.Sequential(*layers, nn.Linear(inputs, classes))


def learn(
    network: nn.Module,
    features: Tensor,
    labels: Tensor,
    *,
    lr: float,
    momentum: float,
    epochs: int,
    batch: int,
    seed: int,
) -> nn.Module:
    """Train by SGD with momentum on the cross entropy."""
    optimiser = torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum)
    network.train()
    for _, rows in batches(len(labels), batch, epochs, np.random.default_rng(seed)):
        picked = torch.from_numpy(rows)
        optimiser.zero_grad(set_to_none=True)
        cross_entropy(network(features[picked]), labels[picked]).backward()
        optimiser.step()
    return network.eval()


@torch.inference_mode()
def logits(network: nn.Module, features: Tensor, batch: int = 4096, label: str = "logits") -> np.ndarray:
    """Return the (n, classes) float64 outputs of a classifier in evaluation mode, computed in batches with progress."""
    training = network.training
    network.eval()
    starts = range(0, len(features), batch)
    parts = [network(features[at : at + batch]).cpu() for at in progress(starts, label, unit="batches")]
    network.train(training)
    return torch.cat(parts).double().numpy()


def negative_logits(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the (n,) losses -(ln f - ln(1 - f)), f the probability of the true class (Negoescu et al. 2024, section 3).

    ``outputs`` are logits: (n, classes) before a softmax, or (n,) or (n, 1) before a sigmoid, which gives the probability
    of label 1. The losses come from the logits, so that they stay exact where f rounds to 1.
    """
    outputs, labels = np.asarray(outputs, float), np.asarray(labels)
    if outputs.ndim == 1 or outputs.shape[1] == 1:
        return (1 - 2 * labels) * outputs.reshape(len(labels))
    rows = np.arange(len(labels))
    true = outputs[rows, labels]
    others = outputs.copy()
    others[rows, labels] = -np.inf
    return np.logaddexp.reduce(others, axis=1) - true
