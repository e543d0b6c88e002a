"""Stage `report`: one HTML page, its figures, a summary for machines and the rows of the DVC plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stages import params, tracking
from stages.artifacts import atomic_folder, write_json, write_text
from stages.entry import run_stage


def main() -> None:
    run(params.load())
    logged = tracking.log_new()
    if logged:
        print(logged)


def run(settings: Any, root: Path = Path("data")) -> None:
    """Render the artifacts below ``root`` that ``settings`` names into ``root/report``."""
    from stages.reporting import provenance
    from stages.reporting.page import render
    from stages.reporting.run import load

    page = render(load(settings, root, provenance.collect(Path())))
    with atomic_folder(root / "report") as folder:
        write_text(folder / "index.html", page.html)
        write_json(folder / "summary.json", page.summary)
        for name, rows in page.plots.items():
            write_json(folder / "plots" / name, rows)
        for name, drawing in page.figures.items():
            write_text(folder / "figures" / name, drawing)
    for artifact in page.summary["missing"]:
        print(f"missing: {artifact['path']}, made by {artifact['made_by']}")
    print(f"report: {root / 'report/index.html'}")


if __name__ == "__main__":
    run_stage(main)
