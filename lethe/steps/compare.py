"""Stage `compare`: every model against Retrain, from the likelihoods of the forget set and the held-out set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import plural
from lethe.evaluation.guarantees import guarantees
from lethe.io.artifacts import read_tables
from lethe.io.atomic import SCHEMA_VERSION
from lethe.io.json_files import write_json

if TYPE_CHECKING:
    from lethe.config.exact import Exact


def run(
    models: Sequence[str], retrain: str | None, alpha: float, exact: Exact | None, root: Path = Path("data")
) -> None:
    """Write ``root/compare.json`` with keys MODEL.METRIC, and the guarantees to ``root/compare_bounds.json``.

    ``root/compare_exact.json`` has the exact bounds against Retrain's, per question.
    """
    from lethe.evaluation.against_retrain import against_retrain
    from lethe.evaluation.exact_bounds import compared as compared_exactly

    models = models if retrain else ()
    tables = {model: read_tables(root / "scores" / model / "likelihood", f"score@{model}") for model in models}
    compared = {model: against_retrain(table, tables[str(retrain)], alpha) for model, table in tables.items()}
    flat = {f"{model}.{key}": value for model, found in compared.items() for key, value in found.flat().items()}
    bounds = {
        f"{model}.{key}": bound for model, found in compared.items() for key, bound in found.bounds().items()
    }
    trees = compared_exactly(root, models, retrain, exact.ratio, exact.alpha) if exact else {}
    flat |= {f"{model}.{key}": value for model, found in trees.items() for key, value in found.flat().items()}
    rows = {model: found.as_json() for model, found in trees.items()}
    write_json(root / "compare_exact.json", {"schema": SCHEMA_VERSION, "retrain": retrain, "models": rows})
    write_json(root / "compare.json", {"schema": SCHEMA_VERSION, "retrain": retrain if flat else None, **flat})
    write_json(root / "compare_bounds.json", guarantees(bounds))
    print(
        f"{plural(len(models), 'model')} against {retrain}"
        if flat
        else "report.retrain is null: nothing to compare with"
    )
