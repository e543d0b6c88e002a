"""Stage `score@MODEL`: the scores of every generation, one column per scorer; a missing score is null, never 0."""

from __future__ import annotations

from pathlib import Path

from lethe import config
from lethe.config import Params
from lethe.io.shards import Shard
from lethe.process import run_stage
from lethe.steps import score as step
from lethe.steps import score_shards


def run(settings: Params, root: Path, name: str, shard: str | None = None) -> None:
    """Score ``root/generations/name`` and ``root/likelihood/name``; write ``root/scores/name``."""
    from lethe.scoring.verdicts import KEPT

    if shard is not None:
        score_shards.run(name, settings.score, Shard.parse(shard), root, KEPT)
        return
    step.run(name, settings.score, root, settings.judges, KEPT)


def main(name: str, shard: str | None = None) -> None:
    """Run the stage with params.yaml, as DVC does; ``shard``: one of its shards, such as 2of8."""
    run(config.load(), Path("data"), name, shard)


if __name__ == "__main__":
    run_stage(main)
