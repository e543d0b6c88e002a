"""The settings of a landscape, validated before anything runs, and the strategies that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lethe.config import validate
from lethe.config.fields import Alpha, Count, Positive, Section, Seed
from lethe.config.yaml import parse, read_preset, section_of
from lethe.errors import BadParam, plural

FILES = Path(__file__).parent / "presets"


@dataclass(frozen=True)
class Strategy:
    """One way to train: a baseline (``epsilon`` and ``clip`` are None) or DP-SGD.

    ``microbatches`` is None where every record's gradient is clipped separately.
    """

    epochs: int
    batch: int
    epsilon: float | None = None
    clip: float | None = None
    microbatches: int | None = None

    @property
    def group(self) -> str:
        return "no DP" if self.epsilon is None else f"DP, ε = {self.epsilon:g}"

    @property
    def name(self) -> str:
        if self.epsilon is None:
            return plural(self.epochs, "epoch", "epochs")
        groups = (
            "single records"
            if self.microbatches is None
            else plural(self.microbatches, "microbatch", "microbatches")
        )
        return f"ε {self.epsilon:g}, clip {self.clip:g}, batch {self.batch}, {groups}"


class Data(Section):
    kind: Literal["adult", "purchase100", "digits"]
    source: str | None
    points: Count | None
    population: Annotated[float, Field(gt=0, lt=1)]
    seed: Seed


class Network(Section):
    hidden: list[Count]


class Optimiser(Section):
    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)]


class Baseline(Section):
    epochs: Annotated[list[Count], Field(min_length=1)]
    batch: Count


class Private(Section):
    epochs: Count
    epsilons: Annotated[list[Positive], Field(min_length=1)]
    clips: Annotated[list[Positive], Field(min_length=1)]
    batches: Annotated[list[Count], Field(min_length=1)]
    microbatches: Annotated[list[Count | None], Field(min_length=1)]


class GoodnessOfFit(Section):
    components: Count
    samples: Annotated[list[Count], Field(min_length=1)]


class LandscapeSettings(Section):
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


def read(name: str, changes: Sequence[str]) -> LandscapeSettings:
    document = read_preset(FILES, name, "landscape")
    source, legal = f"studies/landscape/presets/{name}.yaml", "a key of the file"
    for key, value in map(parse, changes):
        section, last = section_of(document, key, value, source, legal)
        if last not in section:
            raise BadParam(key, value, legal, source)
        section[last] = value
    return validate(document, source, LandscapeSettings)
