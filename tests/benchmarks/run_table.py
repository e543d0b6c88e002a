"""The models of a finished run as a Markdown table, printed or written between the marks of a page.

``python -m tests.benchmarks.run_table --write docs/evidence.md`` reads params.yaml and data/ of this folder, or of
``--folder``, and replaces what stands between ``<!-- run -->`` and ``<!-- end run -->``. Bounds are rounded away from their
claim, and a note says what each guarantees.
"""

from collections.abc import Sequence

from lethe import config
from lethe.errors import BadFile
from lethe.evaluation.run import Model, Run, load
from lethe.statistics.bound import Bound
from lethe.text import number
from tests.benchmarks import marks

# The columns with their heads; a column that no model has is left out.
COLUMNS = {
    "greedy_mean": "greedy answer: mean score",
    "mean": "sampled answers: mean score",
    "m_mu_worst": "worst question: mean score at most",
    "binary_any": "questions with a leaking answer",
    "m_bin_worst": "worst question leaks at most",
    "tree_lower_worst": "worst question leaks at least, certain",
    "retain_mean": "retain score",
}


def table(run: Run) -> str:
    """The models of a run, a row each, with the guarantees below."""
    models = [model for model in run.models if model.values]
    if not models:
        raise BadFile("data/results", "holds no results of the models in params.yaml", "Run `lethe run` first.")
    bounds = {key: bound for model in models for key, bound in model.bounds.items() if key in COLUMNS}
    shown = {key: head for key, head in COLUMNS.items() if any(model.value(key) is not None for model in models)}
    rows = [[model.name, *(cell(model, key) for key in shown)] for model in models]
    notes = [
        f"{head[:1].upper()}{head[1:]}: {bounds[key].relation} so much {bounds[key].guarantee('the forget questions')}."
        for key, head in shown.items()
        if key in bounds
    ]
    first = models[0].values
    drawn = f"{first['n_questions']} forget questions, {first['n']} answers each, seed {run.params.sample.seed}."
    below = " ".join([drawn, *notes, "The other columns are estimates."])
    return f"{marks.markdown(['model', *shown.values()], rows)}\n\n{below}"


def cell(model: Model, key: str) -> str:
    """The number of one column as text; a bound rounds itself."""
    found = model.value(key)
    bound: Bound | None = model.bounds.get(key)
    return bound.number() if bound is not None else number(found)


def main(arguments: Sequence[str] | None = None) -> None:
    options = marks.parser_of(__doc__).parse_args(arguments)
    run = load(config.load(options.folder / config.FILE), options.folder / "data", {})
    marks.put(options.write, "run", table(run))


if __name__ == "__main__":
    main()
