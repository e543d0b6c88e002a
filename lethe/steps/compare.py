"""Stage `compare`: everything that is said of several models together, and of each beside the others.

Every model is compared with Retrain, by the likelihoods of the forget set and the held-out set, by exact bounds, and by what
each question leaks beyond Retrain, with the path on which the evidence came there. The models under test are ranked, and the
methods summed up over their seeds. Each model has its word on a trace. The findings put all this into sentences, which page,
terminal, MLflow and gates read.
"""

from collections.abc import Sequence
from pathlib import Path

from lethe.comparison.over_seeds import families, rows_over_seeds
from lethe.comparison.within import ranked_rows
from lethe.config.measuring import Exact
from lethe.config.schema import Params
from lethe.errors import plural
from lethe.io.artifacts import Tables
from lethe.measure.likelihood_metrics import against_retrain
from lethe.measure.run import Run, load_models
from lethe.results import table
from lethe.results.exact_bounds import certificates_of, excess_over_retrain
from lethe.results.table import Numbers, Result, Results
from lethe.steps.traces import words
from lethe.verdict.beyond import beyond_chance
from lethe.verdict.evidence_path import paths
from lethe.verdict.finding import Finding, Findings
from lethe.verdict.found import found
from lethe.verdict.standing import Standing


def run(settings: Params, root: Path) -> None:
    """Write ``root/results/compare/models.parquet``; of several Retrains the first is compared with.

    All models share alpha, so one stage makes the words on all of them.
    """
    retrain = next(iter(settings.report.retrains), None)
    alpha = settings.metrics.alpha
    results = table.read(root, settings.models, without=table.NOT_COMPARED)
    artifacts = load_models(settings, root)
    rows = against(list(settings.models), retrain, alpha, settings.exact, results, root)
    rows += beyond_chance(artifacts)
    rows += paths(artifacts, root)
    rows += ranks(settings, root)
    on_traces: list[Result] = []
    if settings.twins is not None:
        on_traces = words(results, settings.subjects, settings.twins, alpha, settings.sharing, root)

    findings = found(artifacts, on_traces)
    rows += over_seeds(settings, artifacts, [*rows, *on_traces], findings)
    write(root, [*rows, *on_traces], findings)

    compared = f"{plural(len(settings.models), 'model')} against {retrain}"
    print(compared if retrain else "report.retrain is null: nothing to compare with")


def write(root: Path, rows: Sequence[Result], findings: Sequence[Finding]) -> None:
    """Write the table of all models: what was compared, and what was found."""
    found_rows = [finding.row() for finding in findings]
    table.write(table.place(root, "compare", "models"), [*rows, *found_rows])


def ranks(settings: Params, root: Path) -> list[Result]:
    """Return the rows of every pair of models under test, by the 0/1 scorer, else by the bounded score."""
    score = settings.metrics.binary or settings.metrics.leak
    judges = {name: judge.model_dump(mode="json") for name, judge in settings.judges.items()}
    params = {"score": settings.score.model_dump(mode="json"), "judges": judges}
    return ranked_rows(root, settings.subjects, score, params, settings.metrics.alpha)


def over_seeds(
    settings: Params, artifacts: Run, compared: Sequence[Result], findings: Sequence[Finding]
) -> list[Result]:
    """Return the rows of the methods over their seeds; empty where nothing has several seeds.

    ``compared`` are rows of the models that this stage made.
    """
    if not families(settings):
        return []
    numbers = {}
    for model in artifacts.models:
        further = [row for row in compared if (row.model, row.scope) == (model.name, "model")]
        numbers[model.name] = Numbers([*model.numbers.rows, *further])
    all_findings = Findings(tuple(findings))
    words_of_model = {}
    for model in artifacts.models:
        words_of_model[model.name] = Standing.of(all_findings, model.name).words
    return rows_over_seeds(settings, numbers, words_of_model)


def against(
    models: Sequence[str],
    retrain: str | None,
    alpha: float,
    exact: Exact | None,
    results: Results,
    root: Path,
) -> list[Result]:
    """Return the comparisons of likelihoods and of exact bounds with Retrain; empty without one.

    Parameters
    ----------
    models
        All models, Retrain among them.
    retrain
        The name of the Retrain; None: there is none.
    exact
        The settings of exact bounds; None: there are none.
    results
        The rows of all models.
    root
        The folder of all artifacts.
    """
    if retrain is None:
        return []
    rows = {model: table.Rows(model) for model in models}

    likelihoods = {}
    for model in models:
        folder = root / "scores" / model / "likelihood"
        likelihoods[model] = Tables(folder, f"score@{model}")
    for model, likelihood in likelihoods.items():
        if likelihood and likelihoods.get(retrain):  # a served model has none
            against_retrain(rows[model], likelihood, likelihoods[retrain], alpha)

    if exact:
        trees = {}
        for model in models:
            certificates = certificates_of(results, model)
            if certificates is not None:
                trees[model] = certificates
        excess_of_model = excess_over_retrain(trees, retrain, exact.ratio, exact.alpha)
        for model, excess in excess_of_model.items():
            excess.to_rows(rows[model])
    return [row for of_model in rows.values() for row in of_model.rows]
