"""`lethe study game`: play one unlearning sample inference game by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import BadValue
from lethe.io.json_files import restored

if TYPE_CHECKING:
    from lethe.audits import AuditResult
    from lethe.config.schema import GameParams
    from lethe.statistics.unlearning_game import Quality

PRESETS = Path(__file__).parents[1] / "presets"


def register() -> None:
    """Add the games on images to the kinds that an entry of ``games`` may have."""
    from lethe.audits.finished_models import SCRATCH, Runner, in_processes
    from lethe.audits.unlearning_game.result import played
    from lethe.registry import GAMES
    from studies.image_game.play import play, play_tables
    from studies.image_game.settings import ImageGameParams, ImageTablesParams

    def kind(model: type[GameParams], function: Callable[..., tuple]) -> SimpleNamespace:
        def whole(settings: GameParams, scratch: Path | None = None, run: Runner | None = None) -> AuditResult:
            return played(*function(settings, scratch or SCRATCH, run or in_processes))

        return SimpleNamespace(Params=model, play=whole)

    GAMES.register("images", kind(ImageGameParams, play))
    GAMES.register("image_tables", kind(ImageTablesParams, play_tables))


def command(
    name: Annotated[str, typer.Argument(help="An entry of games in params.yaml, or of a preset.")],
    preset: Annotated[str | None, typer.Option(help="Take the game from this preset, by its name.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Play one game outside the pipeline: its result and its own page go to data/games.

    A killed game keeps its finished models.

    Example: `lethe study game digits --preset game-digits`
    """
    from flows import settings
    from lethe import config
    from lethe.audits.unlearning_game.result import GameResult
    from lethe.config import yaml as presets
    from lethe.steps import game as step

    register()
    document = config.read_yaml(config.FILE)
    if preset:
        folder = PRESETS if (PRESETS / f"{preset}.yaml").is_file() else settings.PRESETS
        document["games"] = presets.read_preset(folder, preset).get("games", {})
    games = config.validate(document).games
    if name not in games:
        where = f"preset {preset}" if preset else "params.yaml"
        raise BadValue("game", name, f"a game of {where}: {', '.join(games) or 'it has none'}")
    played = step.play(name, games[name])
    step.write(name, played)
    result = played.headline
    if as_json or "methods" not in result:
        print_json(result)
        return
    methods = restored(GameResult, played.details).methods
    print_table(
        f"Unlearning quality: {name}",
        ["method", "quality", "ci_low", "ci_high", "attack", "mia_score"],
        [
            [name, one.quality.value, *(one.quality.bounds() or (None, None)), one.quality.attack, one.mia_score]
            for name, one in methods.items()
        ],
        [
            interval_note(next(iter(methods.values())).quality),
            f"The whole result: data/games/{name}/index.html",
        ],
    )


def interval_note(quality: Quality) -> str:
    """Return the guarantee of the intervals as a sentence; all methods share it."""
    ends = quality.bounds()
    if ends is None:
        return "No intervals: one model per split."
    return f"ci_low to ci_high: {ends[0].guarantee()}, for each method by itself ({ends[0].method})."
