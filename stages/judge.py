"""Stage `judge@NAME`: one judge's verdicts on the answers of every model, and its error on labelled answers."""

from pathlib import Path

from lethe.config import Params
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Judge ``root/generations`` of every model with one entry of ``judges``; write ``root/judged/name``."""
    from lethe.steps import judge as step

    step.run(name, settings.judges[name], list(settings.models), root)


main = entry(run, __name__)
