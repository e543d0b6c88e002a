"""Stage `metrics@MODEL`: high-probability bounds on the whole output distribution, from the scores."""

from __future__ import annotations

from pathlib import Path

from lethe import config
from lethe.config import Params
from lethe.process import run_stage
from lethe.steps import metrics as step


def run(settings: Params, root: Path, name: str) -> None:
    """Measure ``root/scores/name``; write ``root/results/metrics/name.parquet`` and ``root/metrics/name.json``."""
    step.run(name, settings.metrics, root, settings.judges, settings.sample.truncated)


def main(name: str) -> None:
    """Run the stage with params.yaml, as DVC does."""
    run(config.load(), Path("data"), name)


if __name__ == "__main__":
    run_stage(main)
