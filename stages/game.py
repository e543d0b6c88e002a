"""Stage `game@NAME`: one entry of `games`, by the module of its kind."""

from __future__ import annotations

from pathlib import Path

from lethe import config
from lethe.config import Params
from lethe.errors import BadValue
from lethe.process import run_stage
from lethe.steps import game as step


def run(settings: Params, root: Path, name: str) -> None:
    """Play one entry of ``games``; write ``root/games/name.json`` and ``root/games/name``."""
    games = settings.games
    if name not in games:
        raise BadValue("game", name, f"a name under games in params.yaml: {', '.join(games) or 'there is none'}")
    result = step.play(name, games[name])
    step.write(name, result, root)
    for sentence in result.sentences:
        print(f"{name} {sentence}")


def main(name: str) -> None:
    """Run the stage with params.yaml, as DVC does."""
    run(config.load(), Path("data"), name)


if __name__ == "__main__":
    run_stage(main)
