"""Stage `report`: one HTML page, a summary for machines and the rows of the DVC plots."""

from __future__ import annotations

from pathlib import Path

from stages import params, reporting
from stages.artifacts import atomic_folder, write_json, write_text
from stages.entry import run_stage
from stages.reporting import provenance

OUT = Path("data/report")


def main() -> None:
    root = Path()
    page = reporting.render(reporting.load(params.load(), root, provenance.collect(root)))
    with atomic_folder(OUT) as folder:
        write_text(folder / "index.html", page.html)
        write_json(folder / "summary.json", page.summary)
        for name, rows in page.plots.items():
            write_json(folder / "plots" / name, rows)
    for artifact in page.summary["missing"]:
        print(f"missing: {artifact}")
    print(f"report: {OUT / 'index.html'}")


if __name__ == "__main__":
    run_stage(main)
