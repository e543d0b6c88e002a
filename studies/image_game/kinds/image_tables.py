"""The game on images, varied in four ways: the tables and the figure of Tu et al. (2024)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.config.fields import Count, Integer
from lethe.config.schema import GameParams
from studies.image_game.kinds import images
from studies.image_game.settings import ImageLearning, Privacy

if TYPE_CHECKING:
    from lethe.audits.protocol import AuditResult
    from lethe.audits.unlearning_game.rounds import Runner


class Params(GameParams):
    """Tables 1 to 4 and Figure 2 of Tu et al. (2024) at the scale of the entry: the game varied in four ways."""

    kind: Literal["image_tables"]
    game: images.Params
    private_learning: ImageLearning
    budgets: Annotated[list[Privacy], Field(min_length=1)]
    points: list[Count]
    repeats: Annotated[Integer, Field(ge=2)]


def play(settings: Params, scratch: Path | None = None, run: Runner | None = None) -> AuditResult:
    """Play every variant; the variants share their common models.

    The parameters are those of `images.play.play`.
    """
    from lethe.audits.finished_models import SCRATCH, in_processes
    from lethe.audits.unlearning_game.result import played
    from studies.image_game.tables import play

    return played(*play(settings, scratch or SCRATCH, run or in_processes))
