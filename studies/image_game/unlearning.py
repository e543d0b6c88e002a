"""Defenders of the image game, by the name under ``method`` of an entry, and the making of one model.

This module imports all code that decides a model, and neither the game's rounds nor its attacks: the key of a model holds
the code of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.config.fields import Count, Positive, Section, Weight
from lethe.io.atomic import atomic_folder

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from lethe.audits.unlearning_game.rounds import Job
    from lethe.data.images import Images
    from studies.image_game.play import ImageGameParams
    from studies.image_game.training import Points, ResNet

WEIGHTS, LOGITS = "model.safetensors", "logits.npy"
CEILING = 10.0  # on F^(-1/4): without a ceiling the noise on a weight with zero information would be infinite


class DefenderParams(Section):
    """The key of every defender; each defender's ``Params`` derives from this class."""

    method: str


class Descent(DefenderParams):
    lr: Positive
    epochs: Count
    batch: Count


class NegGrad(Descent):
    retain_weight: Weight


class Fisher(DefenderParams):
    noise: Positive


@dataclass(frozen=True)
class Task:
    """The input of a defender: ``network`` is a copy to change in place, or None; ``learn`` trains afresh.

    ``settings`` is the params entry, checked by the defender's ``Params``.
    """

    network: ResNet | None
    retain: Points
    forget: Points
    learn: Callable[[Points], ResNet]
    settings: Any
    seed: int

    @property
    def learned(self) -> ResNet:
        if self.network is None:
            raise ValueError("a defender that trains afresh gets no learned network")
        return self.network


@dataclass(frozen=True)
class Defender:
    """One way to unlearn; with ``afresh`` it sees only the retain set, and no model learned on both sets."""

    unlearn: Callable[[Task], ResNet]
    Params: type[DefenderParams] = DefenderParams
    afresh: bool = False


def fisher(task: Task) -> ResNet:
    """Fisher forgetting: noise on each weight that matters little to the retain set (Golatkar et al. 2020, eq. 8).

    w becomes w + noise * F^(-1/4) n, with n standard normal and F the diagonal of the Fisher information on the retain
    set. A weight that the retain set determines hardly moves. Noise overwrites a weight that only the forget set needed.
    """
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


def ft_final(task: Task) -> ResNet:
    """FtFinal: fine-tune the last layer on the retain set and freeze all earlier layers (Goel et al. 2023)."""
    import torch
    from torch.nn.functional import cross_entropy

    from studies.image_game.training import descend

    with torch.no_grad():  # the frozen layers run only once
        features = torch.cat([task.learned.eval().features(part) for part in task.retain.images.split(1024)])

    def loss(rows: np.ndarray) -> Tensor:
        return cross_entropy(task.learned.final(features[rows]), task.retain.labels[rows])

    descend(task.learned, task.learned.final.parameters(), loss, len(features), task.settings, task.seed)
    return task.learned


def retr_final(task: Task) -> ResNet:
    """RetrFinal: as FtFinal, from a last layer that is initialised anew (Goel et al. 2023)."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(task.seed)
        task.learned.final.reset_parameters()
    return ft_final(task)


def neg_grad(task: Task) -> ResNet:
    """NegGrad: ascend the loss on the forget set while descending the loss on the retain set (Golatkar et al. 2020).

    Each step takes a forget batch and a random retain batch, and descends ``retain_weight`` times the retain loss minus
    the forget loss. A weight of 0 is plain gradient ascent. The size of the forget set decides the number of steps.
    """
    from torch.nn.functional import cross_entropy

    from studies.image_game.training import descend

    network, retain, forget, settings = task.learned, task.retain, task.forget, task.settings
    draws = np.random.default_rng([task.seed, 1])

    def loss(rows: np.ndarray) -> Tensor:
        climbed = -cross_entropy(network(forget.images[rows]), forget.labels[rows])
        if not settings.retain_weight:
            return climbed
        drawn = draws.integers(len(retain), size=settings.batch)
        descended = cross_entropy(network(retain.images[drawn]), retain.labels[drawn])
        return climbed + settings.retain_weight * descended

    descend(network, network.parameters(), loss, len(forget), settings, task.seed)
    return network


DEFENDERS = {
    "fisher": Defender(fisher, Fisher),
    "ft_final": Defender(ft_final, Descent),
    "neg_grad": Defender(neg_grad, NegGrad),
    "none": Defender(lambda task: task.learned),  # the learned model without a change
    "retr_final": Defender(retr_final, Descent),
    "retrain": Defender(lambda task: task.learn(task.retain), afresh=True),  # the gold standard
}


def make(images: Images, settings: ImageGameParams, job: Job, start: Path | None, place: Path) -> None:
    """Write the model of a job into a folder, with its logits on the whole data set."""
    import torch
    from safetensors.torch import load_file, save_file

    from studies.image_game.training import build, device, learn, logits, points

    torch.set_num_threads(1)
    recipe, privacy = settings.learning, settings.privacy

    def learned(data: Points) -> ResNet:
        return learn(data, images.classes, recipe, privacy, job.seed)

    retain = points(images, job.retain, job.labels)
    if job.method is None:
        network = learned(retain)
    else:
        given, entry = None, settings.methods[job.method]
        if start is not None:
            given = build(recipe.network, retain.images.shape[1], images.classes, 0, privacy is not None)
            given.load_state_dict(load_file(start / WEIGHTS))
            given.to(device())
        forget = points(images, job.forget, job.labels)
        network = DEFENDERS[entry.method].unlearn(Task(given, retain, forget, learned, entry, job.seed))
    with atomic_folder(place) as folder:
        save_file(network.state_dict(), folder / WEIGHTS)
        np.save(folder / LOGITS, logits(network.eval(), images))
