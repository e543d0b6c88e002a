"""Stage `compare`: what is compared over all models, and the findings: everything that is said of them."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import compare as step
from stages import entry


def run(settings: Params, root: Path) -> None:
    """Compare all models of the pipeline."""
    step.run(settings, root)


main = entry(run, __name__)
