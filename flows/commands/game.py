"""`lethe game`: play one unlearning sample inference game by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import BadValue

if TYPE_CHECKING:
    from lethe.statistics.unlearning_game import Quality


def command(
    name: Annotated[str, typer.Argument(help="An entry of games in params.yaml, or of a preset.")],
    preset: Annotated[str | None, typer.Option(help="Take the game from this preset, by its name.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Play one game outside the pipeline: its result and its own page go to data/games.

    A killed game keeps its finished models. `lethe run --preset NAME` plays it as a stage of the pipeline instead,
    with the models that this command has finished.

    Example: `lethe game digits --preset game-digits`
    """
    from flows import settings
    from flows.server import require, temporary_server
    from lethe import config
    from lethe.audits.unlearning_game.result import GameResult

    document = config.read_yaml(config.FILE)
    if preset:
        document["games"] = settings.read_preset(preset).get("games", {})
    games = config.validate(document).games
    if name not in games:
        where = f"preset {preset}" if preset else "params.yaml"
        raise BadValue("game", name, f"a game of {where}: {', '.join(games) or 'it has none'}")
    with temporary_server(Path.cwd()):
        require()
        from flows.play_game import play

        played = play(name, games[name])
    result = played.headline
    if as_json or "methods" not in result:
        print_json(result)
        return
    methods = GameResult.from_json(played.details).methods
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
