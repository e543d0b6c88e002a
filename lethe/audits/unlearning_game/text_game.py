"""The unlearning game on language models, whole authors at a time."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from lethe.audits import SCRATCH, AuditResult, Runner, in_processes
from lethe.audits.unlearning_game import RoundsParams
from lethe.audits.unlearning_game.result import played
from lethe.config.evaluating import SAMPLE, EngineName, ScorerName
from lethe.config.fields import Alpha, Count, Draws, Name, NameIn, Positive, Section, Seed
from lethe.config.schema import Data, Method, TrainRecipe, UnlearnRecipe
from lethe.registry import TEXT_ATTACKS

AttackName = Annotated[str, NameIn((TEXT_ATTACKS,))]


class TextLearning(TrainRecipe):
    """The recipe of the pipeline's training; the game gives every model its own seed."""

    start_from: str | None = None
    # Only authors: data that every model trains on cannot distinguish members from non-members.
    knowledge: Annotated[list[Literal["world", "real_authors"]], Field(max_length=0)] = Field(default_factory=list)
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


class Params(RoundsParams):
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
            raise ValueError(f"names other than {' and '.join(sorted(taken))}: the game always plays these two")
        return methods


def play(settings: Params, scratch: Path | None = None, run: Runner | None = None) -> AuditResult:
    from lethe.audits.unlearning_game.text_play import play

    return played(*play(settings, scratch or SCRATCH, run or in_processes))
