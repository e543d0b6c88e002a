"""Stage `report`: one HTML page, its figures, a machine-readable summary and the rows of the DVC plots."""

from pathlib import Path

from lethe import tracking
from lethe.config import Params
from lethe.report import page
from stages import entry


def run(settings: Params, root: Path) -> None:
    """Write ``root/report``; the repository's own pipeline is then logged to MLflow."""
    page.write(settings, root)
    if root != Path("data"):
        return
    logged = tracking.log_new()
    if logged:
        print(logged)


main = entry(run, __name__)
