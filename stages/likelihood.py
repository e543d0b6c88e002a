"""Stage `likelihood@MODEL`: the model's likelihood of the dataset's answers, token by token."""

from __future__ import annotations

from pathlib import Path

from lethe import config
from lethe.config import Params
from lethe.io.shards import Shard
from lethe.process import run_stage
from lethe.steps import likelihood as step


def run(settings: Params, root: Path, name: str, shard: str | None = None) -> None:
    """Write the likelihood tables of one entry of ``models`` to ``root/likelihood/name``."""
    step.run(name, settings.sample, settings.models[name], root, shard=Shard.parse(shard) if shard else None)


def main(name: str, shard: str | None = None) -> None:
    """Run the stage with params.yaml, as DVC does; ``shard``: one of its shards, such as 2of8."""
    run(config.load(), Path("data"), name, shard)


if __name__ == "__main__":
    run_stage(main)
