"""Stage `metrics@MODEL`: high-probability bounds on the whole output distribution, from the scores."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import metrics as step
from stages import entry


def run(settings: Params, root: Path, name: str) -> None:
    """Write ``root/results/metrics/name.parquet``, the bounded quantities of one model."""
    step.run(name, settings.metrics, root, settings.judges, settings.sample.truncated)


main = entry(run, __name__)
