"""Fisher forgetting: noise on each weight that matters little to the retain set (Golatkar et al. 2020, eq. 8).

w becomes w + noise * F^(-1/4) n, with n standard normal and F the diagonal of the Fisher information on the retain set.
A weight that the retain set determines hardly moves. Noise overwrites a weight that only the forget set needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.config.fields import Positive
from studies.image_game.settings import DefenderParams

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from studies.image_game.networks import ResNet
    from studies.image_game.unlearning import Task

NEEDS_LEARNED = True
CEILING = 10.0  # on F^(-1/4): without a ceiling the noise on a weight with zero information would be infinite


class Params(DefenderParams):
    """The parameters of Fisher forgetting."""

    noise: Positive


def unlearn(task: Task[Params]) -> ResNet:
    """Return the unlearned network of ``task``."""
    import torch

    generator = torch.Generator().manual_seed(task.seed)
    information = fisher_information(task.learned, task.retain.images, generator)
    with torch.no_grad():
        for name, weight in task.learned.named_parameters():
            spread = information[name].pow(-0.25).clamp(max=CEILING)
            normal = torch.randn(weight.shape, generator=generator).to(weight.device)
            weight.add_(task.settings.noise * spread * normal)
    return task.learned


def fisher_information(
    network: ResNet, images: Tensor, generator: Generator, size: int = 128
) -> dict[str, Tensor]:
    """Estimate the diagonal E_x E_{y ~ p(y | x)} (d ln p(y | x) / d w)^2 for each weight, with one draw of y per image.

    The labels are draws from the model, not labels of the data: at a minimum the gradients of the data vanish and
    carry no information on the curvature. Batch norm uses its learned statistics, so that samples do not mix.
    """
    import torch
    from torch.func import functional_call, grad, vmap
    from torch.nn.functional import cross_entropy

    network.eval()
    weights = {name: weight.detach() for name, weight in network.named_parameters()}
    fixed = dict(network.named_buffers())

    def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return cross_entropy(functional_call(network, (weights, fixed), (image[None],)), label[None])

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for part in images.split(size):
        with torch.no_grad():
            labels = torch.multinomial(network(part).softmax(1).cpu(), 1, generator=generator)[:, 0].to(
                part.device
            )
        for name, gradient in per_sample(weights, part, labels).items():
            total[name] += gradient.square().sum(0)
    return {name: value / len(images) for name, value in total.items()}
