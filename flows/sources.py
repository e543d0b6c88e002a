"""The sources of a pipeline folder: all files that a copy elsewhere needs to run the stages."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from flows import workspace

RESULTS = Path("data/sweeps")
LEFT = (".git", ".venv*", "__pycache__", "mlruns", "mlflow.db*", "*.egg-info", "build", "tests", ".hypothesis")
NOT_SOURCES = (workspace.SCRATCH, RESULTS, "data/eval", ".dvc/cache", ".dvc/tmp", ".dvc/config.local")


def no_source(root: Path) -> Callable[[str, list[str]], set[str]]:
    """Return what `shutil.copytree` must leave out of a copy of ``root``: outputs, caches, records, environments."""
    made = {root / out for out in workspace.outputs(root)} | {root / place for place in NOT_SOURCES}

    def leave(place: str, names: list[str]) -> set[str]:
        return shutil.ignore_patterns(*LEFT)(place, names) | {name for name in names if Path(place, name) in made}

    return leave
