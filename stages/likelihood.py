"""Stage `likelihood@MODEL`: the model's likelihood of the dataset's answers, token by token."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import likelihood as step
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Write the likelihoods of the given answers under one model, a table a split."""
    step.run(name, settings.asked(name), settings.models[name], root)


main = entry(run, __name__)
