"""Stage `report`: one HTML page, its figures, a machine-readable summary and the rows of the DVC plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lethe.io.atomic import atomic_folder, write_text
from lethe.io.json_files import write_json

if TYPE_CHECKING:
    from lethe.config.schema import EvaluationParams, Params


def run(settings: Params | EvaluationParams, root: Path = Path("data")) -> None:
    """Render the artifacts below ``root`` that ``settings`` lists; write ``root/report``."""
    from lethe.evaluation.run import load
    from lethe.report.page import provenance, render

    artifacts = load(settings, root, provenance(Path()))
    page = render(artifacts)
    with atomic_folder(root / "report") as folder:
        write_text(folder / "index.html", page.html)
        write_json(folder / "summary.json", page.summary)
        for name, rows in page.plots.items():
            write_json(folder / "plots" / name, rows)
        for name, drawing in page.figures.items():
            write_text(folder / "figures" / name, drawing)
    for path, stage in artifacts.missing:
        print(f"missing: {path}, made by {stage}")
    print(f"report: {root / 'report/index.html'}")
