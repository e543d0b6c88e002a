"""The commands of this pipeline folder, which the `lethe` command adds when it runs here."""

from __future__ import annotations

import importlib
from collections.abc import Callable

COMMANDS = ("run", "serve", "sweep")  # modules of flows.commands
STUDIES = {  # `lethe study NAME` and the module whose function `command` it is
    "game": "studies.image_game.command",
    "landscape": "studies.landscape.command",
    "epsilon-star-simulation": "studies.simulation.command",
    "meta-evaluation": "studies.meta_evaluation.command",
    "seeds": "studies.seeds.command",
}


def commands() -> dict[str, Callable[..., None] | dict[str, str]]:
    """The function of each command by its name; of a group of commands, their modules."""
    own = {name: importlib.import_module(f"flows.commands.{name}").command for name in COMMANDS}
    return {**own, "study": STUDIES}
