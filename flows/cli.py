"""The commands of this pipeline folder, which the `lethe` command adds when it runs here."""

from __future__ import annotations

import importlib
from collections.abc import Callable

COMMANDS = (
    "run",
    "serve",
    "sweep",
    "seeds",
    "game",
    "meta-evaluation",
)  # modules of flows.commands, dashes as underscores


def commands() -> dict[str, Callable[..., None]]:
    """The function of each command by its name."""
    return {name: importlib.import_module(f"flows.commands.{name.replace('-', '_')}").command for name in COMMANDS}
