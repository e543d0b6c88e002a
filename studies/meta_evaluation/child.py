"""One process of a meta-evaluation: `python -m studies.meta_evaluation.child PARAMS MODEL ...` works some shards."""

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
    from studies.meta_evaluation.settings import validate
    from studies.meta_evaluation.shards import Shards

    shards = Shards(validate(config.read_yaml(place), place))
    for name in names:
        shards.work(name)
        print(f"{name}: done", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except LetheError as error:
        print(visible(f"lethe: {error}"), file=sys.stderr)
        sys.exit(error.exit_status)
