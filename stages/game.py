"""Stage `game@NAME`: one entry of `games`, by the module of its kind."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import game as step
from stages import entry, named


def run(settings: Params, root: Path, name: str) -> None:
    """Play one entry of ``games``; write ``root/games/name.json`` and ``root/games/name``."""
    result = step.play(name, named("games", settings.games, name))
    step.write(name, result, root)
    for sentence in result.sentences:
        print(f"{name} {sentence}")


main = entry(run, __name__)
