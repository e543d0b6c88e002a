"""Stage `extract@MODEL`: how likely the model gives the answers word for word, and nearly so."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import extract as step
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Write the rows of extraction of one model; without a section ``extract`` none."""
    step.run(name, settings.extract, settings.asked(name), settings.models[name], root)


main = entry(run, __name__)
