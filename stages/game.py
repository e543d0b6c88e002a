"""Stage `game@NAME`: play an unlearning sample inference game and report how well each method unlearns."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import params
from stages.artifacts import SCHEMA_VERSION, atomic_folder, write_json, write_parquet, write_text
from stages.entry import run_stage
from stages.errors import BadValue

if TYPE_CHECKING:
    from stages.learning.game_result import Outcome

PLAYERS = {"images": "stages.learning.image_game", "image_tables": "stages.learning.image_tables"}


def main(name: str) -> None:
    games = params.load().games
    if name not in games:
        raise BadValue("game", name, f"a name under games in params.yaml: {', '.join(games) or 'there is none'}")
    settings = games[name]
    write(name, *importlib.import_module(PLAYERS[settings.kind]).play(settings))


def write(name: str, result: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write a played game's artifacts to data/games/NAME."""
    from stages.learning.game_result import headline, predictions
    from stages.reporting.game import page

    short = headline(result)
    with atomic_folder(Path("data/games") / name) as folder:
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **short})
        write_json(folder / "details.json", {"schema": SCHEMA_VERSION, "name": name, **result})
        write_parquet(folder / "predictions.parquet", predictions(outcomes))
        write_text(folder / "index.html", page(name, result))
    for method, row in short["methods"].items():
        print(f"{name} {method}: unlearning quality {row['quality']:.3f} ({row['attack']})")


if __name__ == "__main__":
    run_stage(main)
