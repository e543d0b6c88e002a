"""Stage `exact@MODEL`: bounds of P(leak) from next-token probabilities, the lower ones certain."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import exact as step
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    step.run(
        name,
        settings.exact,
        settings.sample,
        settings.models[name],
        settings.score.keyword_match,
        root,
    )


main = entry(run, __name__)
