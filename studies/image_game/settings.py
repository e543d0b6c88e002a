"""The parts of an image game's settings. The code that makes models reads these, and imports nothing of the game's rounds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lethe.config.fields import Count, Integer, Positive, Real, Section, Seed, Share


class ImageData(Section):
    """The data set of an image game; see `lethe.data.images.load`."""

    kind: Literal["digits", "fashion_mnist", "cifar10"]
    source: str | None
    points: Count | None
    label_noise: Share
    seed: Seed


class ImageLearning(Section):
    """The training of the image classifiers."""

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


class DefenderParams(Section):
    """The keys of every unlearning method of the image game; each method's ``Params`` derives from this class."""

    method: str
