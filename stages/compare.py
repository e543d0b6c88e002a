"""Stage `compare`: every model against Retrain, from the likelihoods of the forget set and the held-out set."""

from pathlib import Path

from lethe.config import Params
from lethe.steps import compare as step
from stages import entry


def run(settings: Params, root: Path) -> None:
    """Write ``root/results/compare/models.parquet``; of several Retrains the first is compared with."""
    retrain = next(iter(settings.report.retrains), None)
    step.run(list(settings.models), retrain, settings.metrics.alpha, settings.exact, root)


main = entry(run, __name__)
