"""The games: one module NAME_game.py per kind, which ``games.NAME.kind`` of params.yaml names.

A module has

- ``Params``: the model of the entry, derived from `lethe.config.schema.GameParams`,
- ``play(settings, scratch=None, run=None) -> AuditResult``: ``scratch`` is the folder of finished
  models, ``run`` the function that runs calls; both have a default.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from lethe.config.fields import (
    Alpha,
    Count,
    Draws,
    Integer,
    Name,
    NameIn,
    Positive,
    Real,
    Section,
    Seed,
)
from lethe.config.measuring import SAMPLE, EngineName, ScorerName
from lethe.config.schema import Data, GameParams, Method, TrainRecipe, UnlearnRecipe
from lethe.registry import TEXT_ATTACKS


class RoundsParams(GameParams):
    """The keys of a game in rounds, on any kind of data."""

    portion: Annotated[Real, Field(gt=0, lt=1)]
    pairs: Count
    seeds: Count
    seed: Seed
    alpha: Alpha
    shadow_models: Annotated[Integer, Field(ge=4, multiple_of=2)]
    shared_retrain: bool
    random_splits: bool
    attacks: list[str]


AttackName = Annotated[str, NameIn((TEXT_ATTACKS,))]


class TextLearning(TrainRecipe):
    """The recipe of the pipeline's training; the game gives every model its own seed."""

    start_from: str | None = None
    # Only authors: data that every model trains on cannot distinguish members from non-members.
    knowledge: Annotated[list[Literal["world", "real_authors"]], Field(max_length=0)] = Field(
        default_factory=list
    )
    seed: Literal[0] = 0


class TextUnlearning(UnlearnRecipe):
    """The recipe of the pipeline's unlearning, with the game's models and seeds."""

    start_from: Literal["learned"] = "learned"
    seed: Literal[0] = 0


class Leakage(Section):
    """How many answers bound the leakage of each method's first model on its forget set."""

    engine: EngineName
    n: Draws
    temperature: Positive = SAMPLE.temperature
    max_new_tokens: Count
    max_rows: Count
    seed: Seed
    alpha: Alpha
    scorer: ScorerName


class TextParams(RoundsParams):
    """The unlearning sample inference game on language models, whole authors at a time."""

    kind: Literal["text"]
    data: Data
    learning: TextLearning
    unlearning: TextUnlearning
    methods: dict[Name, Method]
    attacks: Annotated[list[AttackName], Field(min_length=1)]
    leakage: Leakage | None

    @field_validator("methods")
    @classmethod
    def _ends_are_taken(cls, methods: dict[str, Method]) -> dict[str, Method]:
        if taken := {"retrain", "none"} & set(methods):
            raise ValueError(
                f"names other than {' and '.join(sorted(taken))}: the game always plays these two"
            )
        return methods
