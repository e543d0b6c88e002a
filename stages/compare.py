"""Stage `compare`: every model against Retrain, from the likelihoods of the forget set and the held-out one."""

from __future__ import annotations

from pathlib import Path

from stages import params
from stages.artifacts import SCHEMA_VERSION, read_tables, write_json
from stages.entry import run_stage

OUT = Path("data/compare.json")


def main(root: Path = Path("data")) -> None:
    from stages.reporting.against_retrain import against_retrain

    settings = params.load()
    name = settings.report.retrain
    flat = {}
    if name is not None:
        tables = {
            model: read_tables(root / "scores" / model / "likelihood", f"score@{model}")
            for model in settings.models
        }
        for model, likelihoods in tables.items():
            values = against_retrain(likelihoods, tables[name], settings.metrics.alpha)
            flat |= {f"{model}.{key}": value for key, value in values.items()}
    write_json(OUT, {"schema": SCHEMA_VERSION, "retrain": name if flat else None, **flat})
    print(
        f"{len(settings.models)} models against {name}"
        if flat
        else "report.retrain is null: nothing to compare with"
    )


if __name__ == "__main__":
    run_stage(main)
