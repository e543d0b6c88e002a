"""The models of the image game: residual networks for small images (He et al. 2016), their training, and the defenders.

``resnet8``, ``resnet14``, ``resnet20``: the CIFAR family of depth 6 n + 2, three stages of n basic blocks. ``resnet18``:
four stages of two, with the 3x3 stem that suits 32x32 pixels. No layer works in place, as per-sample gradients demand.

This module imports all code that decides a model, and neither the game's rounds nor its attacks: its code is in each key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from lethe.config.fields import Count, Integer, Positive, Real, Section, Weight
from lethe.data.images import Images
from lethe.errors import BadValue
from lethe.io.files import atomic_folder
from lethe.models.dp_sgd import make_private, noise_multiplier
from lethe.models.training import batches

if TYPE_CHECKING:
    from lethe.audits.unlearning_game.rounds import ModelJob

WEIGHTS = "model.safetensors"
LOGITS = "logits.npy"
CEILING = 10.0  # on F^(-1/4): without a ceiling the noise on a weight with zero information would be infinite
# name -> (blocks per stage, width of the first stage); each later stage doubles the width and halves the image
NETWORKS = {
    "resnet8": ((1, 1, 1), 16),
    "resnet14": ((2, 2, 2), 16),
    "resnet20": ((3, 3, 3), 16),
    "resnet18": ((2, 2, 2, 2), 64),
}


class ImageLearning(Section):
    """How a network learns: at the epochs of ``milestones`` the learning rate falls to a tenth."""

    network: Literal["resnet8", "resnet14", "resnet20", "resnet18"]
    optimiser: Literal["sgd", "rmsprop"]
    lr: Positive
    momentum: Annotated[Real, Field(ge=0, lt=1)]
    weight_decay: Annotated[Real, Field(ge=0)]
    epochs: Count
    batch: Annotated[Integer, Field(ge=2)]
    milestones: list[Count]


class Privacy(Section):
    """DP-SGD: the budget of one record, and the clipping norm of its gradient."""

    epsilon: Positive
    delta: Annotated[Real, Field(gt=0, lt=1)]
    clip: Positive


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut; the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(
            inputs,
            outputs,
            3,
            stride=stride,
            padding=1,
            bias=False,
        )
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            resized = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(resized, nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        """(batch, outputs, height / stride, width / stride) from (batch, inputs, height, width)."""
        first = torch.relu(self.first_norm(self.first(images)))
        second = self.second_norm(self.second(first))
        return torch.relu(second + self.shortcut(images))


class ResNet(nn.Module):
    """A network from (batch, channels, height, width) to logits (batch, classes); the last layer is ``final``."""

    def __init__(
        self,
        blocks: tuple[int, ...],
        width: int,
        channels: int,
        classes: int,
    ):
        super().__init__()
        convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.stem = nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU())

        layers = []
        inputs = width
        for stage, count in enumerate(blocks):
            outputs = width * 2**stage
            for block in range(count):
                is_halving = stage > 0 and block == 0
                layers.append(Block(inputs, outputs, stride=2 if is_halving else 1))
                inputs = outputs
        self.stages = nn.Sequential(*layers)
        self.final = nn.Linear(inputs, classes)

    def features(self, images: Tensor) -> Tensor:
        """The (batch, features) input of the last layer: the means over the image."""
        return self.stages(self.stem(images)).mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.final(self.features(images))


def build(
    name: str,
    channels: int,
    classes: int,
    seed: int,
    private: bool = False,
) -> ResNet:
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
    """The images ``rows`` (n,) with their labels, or those of ``labels`` (images,); pixels become numbers of -1 to 1."""
    if labels is None:
        labels = images.labels
    pixels = torch.from_numpy(images.pixels[rows]).to(device())
    scaled = pixels.float() * (2 / images.white) - 1
    return Points(scaled, torch.from_numpy(labels[rows]).to(device()))


def device() -> torch.device:
    """A GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def learn(
    data: Points,
    classes: int,
    recipe: ImageLearning,
    privacy: Privacy | None,
    seed: int,
) -> ResNet:
    """Train a fresh network; equal arguments give equal weights on the CPU."""
    channels = data.images.shape[1]
    network = build(recipe.network, channels, classes, seed, privacy is not None)
    network.to(device()).train()
    kind = {"sgd": torch.optim.SGD, "rmsprop": torch.optim.RMSprop}[recipe.optimiser]
    optimiser = kind(
        network.parameters(),
        lr=recipe.lr,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
    )
    if privacy is not None:
        return _learn_privately(network, optimiser, data, recipe, privacy, seed)

    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, recipe.milestones)
    rng = np.random.default_rng(seed)
    last = 0
    for epoch, rows in batches(len(data), recipe.batch, recipe.epochs, rng):
        if epoch != last:
            schedule.step()
            last = epoch
        if len(rows) > 1:  # batch norm cannot learn from a batch of one
            loss = cross_entropy(network(data.images[rows]), data.labels[rows])
            _step(optimiser, loss)
    return network.eval()


def _learn_privately(
    network: ResNet,
    plain: torch.optim.Optimizer,
    data: Points,
    recipe: ImageLearning,
    privacy: Privacy,
    seed: int,
) -> ResNet:
    """Train by DP-SGD: a record is in a batch with probability 1 / (batches of an epoch)."""
    passes = math.ceil(len(data) / min(recipe.batch, len(data)))
    rate = 1 / passes
    steps = recipe.epochs * passes
    noise = noise_multiplier(privacy.epsilon, privacy.delta, rate, steps)
    private, optimiser, loader = make_private(
        network,
        plain,
        data,
        sample_rate=rate,
        noise_multiplier=noise,
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
    """Change parameters by SGD with momentum; batch norm keeps the learned statistics.

    ``loss`` is that of a batch, from the places of its rows among all ``rows``.
    """
    network.eval()
    optimiser = torch.optim.SGD(list(parameters), lr=settings.lr, momentum=0.9)
    rng = np.random.default_rng(seed)
    for _, picked in batches(rows, settings.batch, settings.epochs, rng):
        _step(optimiser, loss(picked))


@torch.inference_mode()
def logits(network: nn.Module, images: Images, size: int = 1024) -> np.ndarray:
    """The (images, classes) logits of all images, computed ``size`` at a time."""
    blocks = []
    for start in range(0, len(images), size):
        rows = np.arange(start, min(start + size, len(images)))
        blocks.append(network(points(images, rows).images))
    return torch.cat(blocks).cpu().numpy()


def _step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step down the loss of a batch."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()


class DefenderParams(Section):
    """An entry of a game's methods; ``method`` names a member of `DEFENDERS`."""

    method: str


class Descent(DefenderParams):
    """The settings of a defender that descends: learning rate, epochs and rows of a batch."""

    lr: Positive
    epochs: Count
    batch: Count


class NegGrad(Descent):
    """The settings of `neg_grad`; the forget loss has the weight 1."""

    retain_weight: Weight


class Fisher(DefenderParams):
    """The settings of `fisher`: how many times F^(-1/4) the noise on a weight is."""

    noise: Positive


D = TypeVar("D", bound=DefenderParams)


@dataclass(frozen=True)
class Task(Generic[D]):
    """A defender's input: ``network`` is a copy to change in place, or None; ``settings`` is its checked params entry."""

    network: ResNet | None
    retain: Points
    forget: Points
    learn: Callable[[Points], ResNet]
    settings: D
    seed: int

    @property
    def learned(self) -> ResNet:
        assert self.network is not None  # a defender that trains afresh does not ask
        return self.network


@dataclass(frozen=True)
class Defender:
    """One way to unlearn; with ``afresh`` it sees only the retain set, and no model learned on both sets."""

    unlearn: Callable[[Task], ResNet]
    Params: type[DefenderParams] = DefenderParams
    afresh: bool = False


def fisher(task: Task[Fisher]) -> ResNet:
    """Fisher forgetting (Golatkar et al. 2020, eq. 8): w becomes w + noise * F^(-1/4) n, with n standard normal.

    F is the diagonal of the Fisher information on the retain set, so a weight that this set determines hardly moves.
    """
    generator = torch.Generator().manual_seed(task.seed)
    information = fisher_information(task.learned, task.retain.images, generator)
    with torch.no_grad():
        for name, weight in task.learned.named_parameters():
            spread = information[name].pow(-0.25).clamp(max=CEILING)
            normal = torch.randn(weight.shape, generator=generator).to(weight.device)
            weight.add_(task.settings.noise * spread * normal)
    return task.learned


def fisher_information(
    network: ResNet, images: Tensor, generator: torch.Generator, size: int = 128
) -> dict[str, Tensor]:
    """The diagonal E_x E_{y ~ p(y | x)} (d ln p(y | x) / d w)^2, with one label drawn from the model per image.

    The images (n, channels, height, width) are read ``size`` at a time; each parameter has a tensor of its shape.
    """
    network.eval()
    weights = {name: weight.detach() for name, weight in network.named_parameters()}
    fixed = dict(network.named_buffers())

    def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        outputs = functional_call(network, (weights, fixed), (image[None],))
        return cross_entropy(outputs, label[None])

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for block in images.split(size):
        with torch.no_grad():
            probabilities = network(block).softmax(1).cpu()
            drawn = torch.multinomial(probabilities, 1, generator=generator)
        labels = drawn[:, 0].to(block.device)
        for name, gradient in per_sample(weights, block, labels).items():
            total[name] += gradient.square().sum(0)
    return {name: value / len(images) for name, value in total.items()}


def ft_final(task: Task[Descent]) -> ResNet:
    """FtFinal: fine-tune the last layer on the retain set and freeze all earlier layers (Goel et al. 2023)."""
    network = task.learned
    network.eval()
    with torch.no_grad():  # the frozen layers run only once
        blocks = [network.features(block) for block in task.retain.images.split(1024)]
        features = torch.cat(blocks)

    def loss(rows: np.ndarray) -> Tensor:
        return cross_entropy(network.final(features[rows]), task.retain.labels[rows])

    final_layer = network.final.parameters()
    descend(network, final_layer, loss, len(features), task.settings, task.seed)
    return network


def retr_final(task: Task[Descent]) -> ResNet:
    """RetrFinal: as FtFinal, from a last layer that is initialised anew (Goel et al. 2023)."""
    with torch.random.fork_rng():
        torch.manual_seed(task.seed)
        task.learned.final.reset_parameters()
    return ft_final(task)


def neg_grad(task: Task[NegGrad]) -> ResNet:
    """NegGrad: descend ``retain_weight`` times the retain loss minus the forget loss (Golatkar et al. 2020).

    Each batch of the forget set stands beside retain rows that are drawn with repetition.
    """
    network = task.learned
    retain = task.retain
    forget = task.forget
    settings = task.settings
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


def make(
    images: Images,
    recipe: ImageLearning,
    privacy: Privacy | None,
    entry: DefenderParams | None,
    job: ModelJob,
    start: Path | None,
    place: Path,
) -> None:
    """Write the model of a job into a folder, with its logits on the whole data set.

    ``entry`` None: the model before unlearning. ``start`` is the folder of the model that a defender changes, None where
    it trains afresh.
    """
    torch.set_num_threads(1)

    def learned(data: Points) -> ResNet:
        return learn(data, images.classes, recipe, privacy, job.seed)

    retain = points(images, job.retain, job.labels)
    if entry is None:
        network = learned(retain)
    else:
        beginning = None
        if start is not None:
            channels = retain.images.shape[1]
            beginning = build(recipe.network, channels, images.classes, 0, privacy is not None)
            beginning.load_state_dict(load_file(start / WEIGHTS))
            beginning.to(device())
        forget = points(images, job.forget, job.labels)
        task = Task(beginning, retain, forget, learned, entry, job.seed)
        network = DEFENDERS[entry.method].unlearn(task)

    with atomic_folder(place) as folder:
        save_file(network.state_dict(), folder / WEIGHTS)
        np.save(folder / LOGITS, logits(network.eval(), images))
