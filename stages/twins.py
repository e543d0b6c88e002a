"""Stage `twins@MODEL`: the scores of the candidates of the forget set's secrets, and the ranks of the true ones."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import twins as step
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Write the ranks of the true secrets of one model among their candidates."""
    model = settings.models[name]
    alpha = settings.metrics.alpha
    step.run(
        name,
        settings.twins,
        alpha,
        settings.asked(name).prompt,
        model,
        root,
    )


main = entry(run, __name__)
