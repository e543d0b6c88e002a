"""Stage `sample@MODEL`: many answers per forget question, fewer per utility question, and the greedy answers."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import sample as step
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    step.run(name, settings.sample, settings.models[name], root, parts=settings.score.parts)


main = entry(run, __name__)
