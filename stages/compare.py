"""Stage `compare`: every model against Retrain, from the likelihoods of the forget set and the held-out set."""

from collections.abc import Sequence
from pathlib import Path

from lethe.config import Params
from lethe.config.measuring import Exact
from lethe.errors import plural
from lethe.io.artifacts import Tables
from lethe.measure.likelihood_metrics import against_retrain
from lethe.results import table
from lethe.results.exact_bounds import certificates_of, excess_over_retrain
from stages import entry


def run(settings: Params, root: Path) -> None:
    """Write ``root/results/compare/models.parquet``; of several Retrains the first is compared with."""
    retrain = next(iter(settings.report.retrains), None)
    compare(list(settings.models), retrain, settings.metrics.alpha, settings.exact, root)


def compare(
    models: Sequence[str], retrain: str | None, alpha: float, exact: Exact | None, root: Path
) -> None:
    models = models if retrain else ()
    rows = {model: table.Rows(model) for model in models}
    likelihoods = {
        model: Tables(root / "scores" / model / "likelihood", f"score@{model}") for model in models
    }
    for model, own in likelihoods.items():
        if own and likelihoods.get(str(retrain)):  # a served model has none
            against_retrain(rows[model], own, likelihoods[str(retrain)], alpha)
    if exact and retrain:
        results = table.read(root, models)
        trees = {model: certificates_of(results, model) for model in models}
        there = {
            model: certificates for model, certificates in trees.items() if certificates is not None
        }
        for model, excess in excess_over_retrain(there, retrain, exact.ratio, exact.alpha).items():
            excess.to_rows(rows[model])
    table.write(
        table.place(root, "compare", "models"), [row for own in rows.values() for row in own.rows]
    )
    against = f"{plural(len(models), 'model')} against {retrain}"
    print(against if models else "report.retrain is null: nothing to compare with")


main = entry(run, __name__)
