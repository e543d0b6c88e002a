"""The models of a finished run as a Markdown table, printed or written between the marks of a page.

``python -m tests.benchmarks.run_table --write docs/evidence.md`` reads params.yaml and data/ of this folder, or of
``--folder``, and replaces what stands between ``<!-- run -->`` and ``<!-- end run -->``. Bounds are rounded away from their
claim, and a note says what each guarantees.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

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
    rows = [["model", *shown.values()], ["---"] * (len(shown) + 1)]
    rows += [[model.name, *(cell(model, key) for key in shown)] for model in models]
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    notes = [
        f"{head[:1].upper()}{head[1:]}: {bounds[key].relation} so much {bounds[key].guarantee('the forget questions')}."
        for key, head in shown.items()
        if key in bounds
    ]
    first = models[0].values
    drawn = f"{first['n_questions']} forget questions, {first['n']} answers each, seed {run.params.sample.seed}."
    return "\n".join([*lines, "", " ".join([drawn, *notes, "The other columns are estimates."])])


def cell(model: Model, key: str) -> str:
    """The number of one column as text; a bound rounds itself."""
    found = model.value(key)
    bound: Bound | None = model.bounds.get(key)
    return bound.number() if bound is not None else number(found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(), help="the pipeline folder of the run")
    parser.add_argument("--write", type=Path, help="the page between whose marks the table goes")
    options = parser.parse_args(arguments)
    found = table(load(config.load(options.folder / config.FILE), options.folder / "data", {}))
    if options.write:
        marks.write(options.write, "run", found)
    print(found)


if __name__ == "__main__":
    main()
