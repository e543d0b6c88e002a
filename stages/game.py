"""Stage `game@NAME`: play an unlearning sample inference game and report how well each method unlearns."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import params
from stages.artifacts import SCHEMA_VERSION, atomic_folder, write_json, write_parquet, write_text
from stages.entry import run_stage
from stages.errors import BadValue

if TYPE_CHECKING:
    from stages.learning.game_result import Outcome

PLAYERS = {
    "images": "stages.learning.image_game",
    "image_tables": "stages.learning.image_tables",
    "text": "stages.sampling.game_leakage",
}


def main(name: str) -> None:
    games = params.load().games
    if name not in games:
        raise BadValue("game", name, f"a name under games in params.yaml: {', '.join(games) or 'there is none'}")
    result, outcomes = player(games[name].kind)(games[name])
    write(name, result, outcomes)
    for method, row in result["methods"].items():
        print(f"{name} {method}: unlearning quality {row['quality']['value']:.3f} ({row['quality']['attack']})")


def player(kind: str) -> Callable:
    """The function that plays a kind of game: settings, and how calls are run, to the result and the outcomes."""
    return importlib.import_module(PLAYERS[kind]).play


def write(name: str, result: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write a played game's artifacts: data/games/NAME.json for `dvc metrics`, all the rest to data/games/NAME."""
    from stages.learning.game_result import headline, predictions
    from stages.reporting.game import page
    from stages.reporting.trends import trends

    games = Path("data/games")
    held = [asdict(trend) for trend in trends(result)]
    write_json(games / f"{name}.json", {"schema": SCHEMA_VERSION, **headline(result), "trends": held})
    with atomic_folder(games / name) as folder:
        write_json(folder / "details.json", {"schema": SCHEMA_VERSION, "name": name, **result})
        write_parquet(folder / "predictions.parquet", predictions(outcomes))
        write_text(folder / "index.html", page(name, result))


if __name__ == "__main__":
    run_stage(main)
