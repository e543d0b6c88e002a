"""Stage `game@NAME`: play an unlearning sample inference game and report how well each method unlearns."""

from __future__ import annotations

import importlib
from pathlib import Path

from stages import params
from stages.artifacts import SCHEMA_VERSION, atomic_folder, write_json, write_parquet, write_text
from stages.entry import run_stage

KINDS = {"images": "stages.learning.image_game"}


def main(name: str) -> None:
    from stages.learning.game import headline, predictions
    from stages.reporting.game import page

    settings = params.load().games[name]
    result, outcomes = importlib.import_module(KINDS[settings.kind]).play(settings)
    with atomic_folder(Path("data/games") / name) as folder:
        write_json(folder / "details.json", {"schema": SCHEMA_VERSION, "name": name, **result})
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **headline(result)})
        write_parquet(folder / "predictions.parquet", predictions(outcomes))
        write_text(folder / "index.html", page(name, result))
    for method, row in headline(result)["methods"].items():
        print(f"{name} {method}: unlearning quality {row['quality']:.3f} ({row['attack']})")


if __name__ == "__main__":
    run_stage(main)
