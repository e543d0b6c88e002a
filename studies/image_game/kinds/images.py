"""The unlearning game on images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.config.fields import Alpha, Count, Integer, MemberOf, Name, NameIn, Real, Seed
from lethe.config.schema import GameParams
from studies.image_game.settings import DefenderParams, ImageData, ImageLearning, Privacy
from studies.registry import ATTACKS, DEFENDERS

if TYPE_CHECKING:
    from lethe.audits.protocol import AuditResult
    from lethe.audits.unlearning_game.rounds import Runner

AttackName = Annotated[str, NameIn((ATTACKS,))]
Defender = Annotated[DefenderParams, MemberOf(DEFENDERS, "method", DefenderParams, needs=True)]


class Params(GameParams):
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
    methods: Annotated[dict[Name, Defender], Field(min_length=1)]
    attacks: Annotated[list[AttackName], Field(min_length=1)]


def play(settings: Params, scratch: Path | None = None, run: Runner | None = None) -> AuditResult:
    """Make all unfinished models and attack every model.

    The parameters are those of `images.play.play`.
    """
    from lethe.audits.finished_models import SCRATCH, in_processes
    from lethe.audits.unlearning_game.result import played
    from studies.image_game.play import play

    return played(*play(settings, scratch or SCRATCH, run or in_processes))
