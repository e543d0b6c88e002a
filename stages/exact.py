"""Stage `exact@MODEL`: bounds of P(leak) from next-token probabilities, the lower ones certain."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import exact as step
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Write ``root/results/exact/name.parquet``, the bounds of each question of one model."""
    step.run(
        name,
        settings.exact,
        settings.asked(name),
        settings.models[name],
        settings.score.keyword_match,
        root,
    )


main = entry(run, __name__)
