"""Stage `report`: one HTML page, its figures, a machine-readable summary and the rows of the DVC plots."""

from pathlib import Path

from lethe.config.schema import EvaluationParams, Params
from lethe.io.files import atomic_folder, write_json, write_text
from lethe.measure.run import load
from lethe.report.page import provenance, render
from lethe.report.svg import pdf


def run(settings: Params | EvaluationParams, root: Path = Path("data")) -> None:
    """Render the artifacts below ``root`` that ``settings`` lists; write ``root/report``."""
    artifacts = load(settings, root, provenance(Path(), root / "generations"))
    page = render(artifacts)
    with atomic_folder(root / "report") as folder:
        write_text(folder / "index.html", page.html)
        write_json(folder / "summary.json", page.summary)
        for name, rows in page.plots.items():
            write_json(folder / "plots" / name, rows)
        for name, drawing in page.figures.items():
            place = folder / "figures" / name
            write_text(place, drawing)
            printed = pdf(drawing)
            if printed is not None:
                place.with_suffix(".pdf").write_bytes(printed)
    for path, stage in artifacts.missing:
        print(f"missing: {path}, made by {stage}")
    print(f"report: {root / 'report/index.html'}")
