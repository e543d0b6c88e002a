"""Stage `unlearn@METHOD`: make the base model forget the forget set."""

from pathlib import Path

from lethe.config import Params
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Unlearn ``unlearn.recipe.start_from`` by one entry of ``unlearn.methods``; write ``root/models/name``."""
    from lethe.models.team import in_processes
    from lethe.steps import unlearn as step

    if not in_processes(settings.unlearn.recipe.compute, "stages.unlearn", name):
        step.run(name, settings.unlearn.recipe, settings.unlearn.methods[name], settings.train.recipe.prompt, root)


main = entry(run, __name__)
