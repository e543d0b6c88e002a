"""Stage `likelihood@MODEL`: the model's likelihood of the dataset's answers, token by token."""

from __future__ import annotations

from pathlib import Path

from lethe import config
from lethe.config import Params
from lethe.process import run_stage
from lethe.steps import likelihood as step


def run(settings: Params, root: Path, name: str) -> None:
    """Write the likelihood tables of one entry of ``models`` to ``root/likelihood/name``."""
    step.run(name, settings.sample, settings.models[name], root)


def main(name: str) -> None:
    """Run the stage with params.yaml, as DVC does."""
    run(config.load(), Path("data"), name)


if __name__ == "__main__":
    run_stage(main)
