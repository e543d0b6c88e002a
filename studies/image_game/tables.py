"""Tables 1 to 4 and Figure 2 of the game's paper, at the scale of params.yaml: one game varied in four ways.

The paper is "Towards Reliable Empirical Machine Unlearning Evaluation: A Game-Theoretic View" (Tu et al. 2024).

Tables 1, 3 and 4: quality, interclass confusion and attack AUC by privacy budget. Table 2: the standard deviation of the
quality over repetitions, swapped pairs against two random splits. Figure 2: quality by data set size (A) and by
repetition (B). The variants share their common models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.audits.finished_models import SCRATCH, Runner, in_processes
from lethe.audits.unlearning_game.result import AttackOutcome, Figure, GameResult, PlayedMethod, Table, Tables
from studies.image_game.play import play as play_images

if TYPE_CHECKING:
    from studies.image_game.kinds.image_tables import Params

NO_PRIVACY = "inf"  # the column of learning without differential privacy
Measure = Callable[[PlayedMethod], float | None]


def play(
    settings: Params, scratch: Path = SCRATCH, run: Runner = in_processes
) -> tuple[GameResult, list[AttackOutcome]]:
    """Play every variant; the result holds the game without privacy, ``tables`` and ``figure``.

    The parameters are those of `images.play.play`.
    """
    base = settings.game

    def variant(**changes: object) -> GameResult:
        return play_images(base.model_copy(update=changes), scratch, run)[0]

    plain, outcomes = play_images(base, scratch, run)
    budgets = {
        f"{privacy.epsilon:g}": variant(privacy=privacy, learning=settings.private_learning, random_splits=False)
        for privacy in settings.budgets
    }
    repeated = variant(pairs=settings.repeats, random_splits=True, confused_classes=None)
    by_points = {
        points: variant(
            data=base.data.model_copy(update={"points": points}), random_splits=False, confused_classes=None
        )
        for points in settings.points
    }
    result = replace(
        plain,
        kind="image_tables",
        tables=tables({**budgets, NO_PRIVACY: plain}, repeated),
        figure=Figure(
            points={
                points: {method: _quality(values) for method, values in game.methods.items()}
                for points, game in by_points.items()
            },
            repetitions=settings.repeats,
            repeats={method: values.by_pair for method, values in repeated.methods.items()},
        ),
        bounds={epsilon: game.privacy for epsilon, game in budgets.items()},
    )
    return result, outcomes


def tables(budgets: dict[str, GameResult], repeated: GameResult) -> Tables:
    """Compute Tables 1, 3 and 4 from the games by budget, and Table 2 from the game of many pairs."""

    def table(measure: Measure, accuracy: Measure) -> Table:
        return Table(
            values={epsilon: _column(game, measure) for epsilon, game in budgets.items()},
            accuracy={epsilon: _column(game, accuracy) for epsilon, game in budgets.items()},
        )

    return Tables(
        quality=table(_quality, _accuracy),
        confusion=table(_confusion, lambda method: method.confusion.accuracy if method.confusion else None),
        mia=table(lambda method: method.mia_score, _accuracy),
        deviation={method: values.deviation for method, values in repeated.methods.items()},
    )


def _column(game: GameResult, measure: Measure) -> dict[str, float | None]:
    return {method: measure(values) for method, values in game.methods.items()}


def _quality(method: PlayedMethod) -> float:
    return method.quality.value


def _accuracy(method: PlayedMethod) -> float:
    return method.performance["test"]


def _confusion(method: PlayedMethod) -> float | None:
    return method.confusion.score if method.confusion else None
