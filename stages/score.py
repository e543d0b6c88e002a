"""Stage `score@MODEL`: the scores of every generation, one column per scorer; a missing score is null, never 0."""

from pathlib import Path

from lethe.config import Params
from lethe.scoring.verdicts import FOLDER
from lethe.steps import score as step
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Write ``root/scores/name``, a table a split with a column a scorer."""
    step.run(name, settings.score, root, settings.judges, FOLDER)


main = entry(run, __name__)
