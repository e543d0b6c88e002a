"""The settings of the games on images, which entries of ``games`` in a preset give."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lethe.config.fields import Alpha, Count, Integer, MemberOf, Name, NameIn, Positive, Real, Section, Seed, Share
from lethe.config.schema import GameParams
from studies.image_game.attacks import ATTACKS
from studies.image_game.unlearning import DEFENDERS, DefenderParams

AttackName = Annotated[str, NameIn((ATTACKS,))]
DefenderEntry = Annotated[DefenderParams, MemberOf(DEFENDERS, "method", DefenderParams, needs=True)]


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


class ImageGameParams(GameParams):
    """The unlearning sample inference game on images."""

    kind: Literal["images"]
    data: ImageData
    portion: Annotated[Real, Field(gt=0, lt=1)]
    pairs: Count
    seeds: Count
    seed: Seed
    alpha: Alpha
    learning: ImageLearning
    privacy: Privacy | None
    shadow_models: Annotated[Integer, Field(ge=4, multiple_of=2)]
    shared_retrain: bool
    random_splits: bool
    confused_classes: Annotated[list[Seed], Field(min_length=2, max_length=2)] | None
    methods: Annotated[dict[Name, DefenderEntry], Field(min_length=1)]
    attacks: Annotated[list[AttackName], Field(min_length=1)]


class ImageTablesParams(GameParams):
    """Tables 1 to 4 and Figure 2 of Tu et al. (2024) at the scale of the entry: the game varied in four ways."""

    kind: Literal["image_tables"]
    game: ImageGameParams
    private_learning: ImageLearning
    budgets: Annotated[list[Privacy], Field(min_length=1)]
    points: list[Count]
    repeats: Annotated[Integer, Field(ge=2)]
