"""Stage `utility@MODEL`: general utility by tasks of lm-evaluation-harness; where no task is named there is no such stage."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import utility as step
from stages import entry, named


def run(settings: Params, root: Path, name: str) -> None:
    """Write the rows of general utility of one entry of ``utility.models``."""
    model = named("utility.models", settings.utility.models, name)
    step.run(name, settings.utility, Path(model.path), Path(settings.data.source), root)


main = entry(run, __name__)
