"""Stage `score@MODEL`: the scores of every generation, one column per scorer; a missing score is null, never 0."""

from __future__ import annotations

from pathlib import Path

from lethe import config
from lethe.config import Params
from lethe.process import run_stage
from lethe.steps import score as step


def run(settings: Params, root: Path, name: str) -> None:
    """Score ``root/generations/name`` and ``root/likelihood/name``; write ``root/scores/name``."""
    from lethe.scoring.verdicts import KEPT

    step.run(name, settings.score, root, settings.judges, KEPT)


def main(name: str) -> None:
    """Run the stage with params.yaml, as DVC does."""
    run(config.load(), Path("data"), name)


if __name__ == "__main__":
    run_stage(main)
