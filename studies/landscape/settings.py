"""The settings of a landscape, validated before anything runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationError

from lethe.config.fields import Alpha, Count, Positive, Section, Seed
from lethe.errors import BadParam


class Data(Section):
    """The data set of a landscape."""

    kind: Literal["adult", "purchase100", "digits"]
    source: str | None
    points: Count | None
    population: Annotated[float, Field(gt=0, lt=1)]
    seed: Seed


class Network(Section):
    """The layers of the classifier."""

    hidden: list[Count]


class Optimiser(Section):
    """The settings of SGD."""

    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)]


class Baseline(Section):
    """The training without privacy."""

    epochs: Annotated[list[Count], Field(min_length=1)]
    batch: Count


class Private(Section):
    """The grid of DP-SGD settings."""

    epochs: Count
    epsilons: Annotated[list[Positive], Field(min_length=1)]
    clips: Annotated[list[Positive], Field(min_length=1)]
    batches: Annotated[list[Count], Field(min_length=1)]
    microbatches: Annotated[list[Count | None], Field(min_length=1)]


class GoodnessOfFit(Section):
    """The goodness-of-fit test of the Gaussians behind Epsilon*."""

    components: Count
    samples: Annotated[list[Count], Field(min_length=1)]


class LandscapeSettings(Section):
    """All settings of a landscape."""

    data: Data
    network: Network
    optimiser: Optimiser
    baseline: Baseline
    private: Private
    runs: Count
    seed: Seed
    delta: Annotated[float, Field(gt=0, lt=0.5)] | None
    alpha: Alpha
    goodness_of_fit: GoodnessOfFit | None


def validate(value: dict[str, object], source: str) -> LandscapeSettings:
    """Return the validated settings; raise `BadParam` with the first wrong key of ``source``."""
    try:
        return LandscapeSettings.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise BadParam(key, first["input"], first["msg"][0].lower() + first["msg"][1:], source) from None
