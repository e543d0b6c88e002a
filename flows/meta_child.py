"""One process of a meta-evaluation: `python -m flows.meta_child PARAMS MODEL ...` works the shards of some models."""

from __future__ import annotations

import os
import sys

from lethe import config
from lethe.errors import LetheError, visible
from lethe.process import no_telemetry, same_numbers, watch


def main(place: str, *names: str) -> None:
    """Work the shards named; a finished shard costs the reading of its files."""
    no_telemetry()
    same_numbers()
    if parent := os.environ.get("LETHE_PARENT"):
        watch(int(parent))
    from lethe.steps.meta.shards import Shards

    shards = Shards(config.load(place))
    for name in names:
        shards.work(name)
        print(f"{name}: done", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except LetheError as error:
        print(visible(f"lethe: {error}"), file=sys.stderr)
        sys.exit(error.exit_status)
