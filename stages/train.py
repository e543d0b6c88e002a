"""Stage `train@NAME`: the base model on everything, or Retrain on all but the forget set."""

from pathlib import Path

from lethe.config import Params
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Train one entry of ``train.models`` on ``root/dataset``; write ``root/models/name``."""
    from lethe.models.team import in_processes
    from lethe.steps import train as step

    recipe = settings.train.recipe_of(name)
    if not in_processes(recipe.compute, "stages.train", name):
        step.run(name, recipe, settings.train.models[name].rows, root)


main = entry(run, __name__)
