"""Stage `exact@MODEL`: bounds of P(leak) from next-token probabilities, the lower ones certain."""

from __future__ import annotations

from pathlib import Path

from lethe import config
from lethe.config import Params
from lethe.process import run_stage
from lethe.steps import exact as step


def run(settings: Params, root: Path, name: str) -> None:
    """Write ``root/results/exact/name.parquet`` of one entry of ``models``."""
    step.run(name, settings.exact, settings.sample, settings.models[name], settings.score.keyword_match, root)


def main(name: str) -> None:
    """Run the stage with params.yaml, as DVC does."""
    run(config.load(), Path("data"), name)


if __name__ == "__main__":
    run_stage(main)
