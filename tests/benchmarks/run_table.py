"""The models of a finished run as a Markdown table, printed or written between the marks of a page.

``python -m tests.benchmarks.run_table --write docs/evidence.md`` reads params.yaml and data/ of this folder, or of
``--folder``, and replaces what stands between ``<!-- run -->`` and ``<!-- end run -->``. Bounds are rounded away from their
claim, and a note says what each guarantees. Of a run on passages, ``--passages`` writes what each model continues between
``<!-- passages -->`` and ``<!-- end passages -->``; the near-verbatim masses are certain; ``--strips`` draws the
text, a strip a model.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lethe import config
from lethe.errors import BadFile
from lethe.measure.run import Run, RunModel, load
from lethe.report.pages import draw_strips
from lethe.results.extraction import Extraction
from lethe.statistics.bound import Bound
from lethe.statistics.extraction import EXTRACTABLE, longest_run
from lethe.text import number, share
from tests.benchmarks import marks

# The columns with their heads; a column that no model has is left out.
COLUMNS = {
    "greedy_mean": "greedy answer: mean score",
    "mean": "sampled answers: mean score",
    "ed_score": "sampled answers: ED",
    "m_mu_worst": "worst question, mean score: at most",
    "binary_any": "questions with a leaking answer",
    "m_bin_worst": "worst question leaks: at most",
    "tree_lower_worst": "worst question leaks: at least",
    "retain_mean": "retain score",
}


def table(run: Run) -> str:
    """The models of a run, a row each, with the guarantees below."""
    models = [model for model in run.models if model.values]
    if not models:
        raise BadFile(
            "data/results",
            "holds no results of the models in params.yaml",
            "Run `lethe run` first.",
        )
    bounds = {
        key: bound for model in models for key, bound in model.bounds.items() if key in COLUMNS
    }
    shown = {
        key: head
        for key, head in COLUMNS.items()
        if any(model.value(key) is not None for model in models)
    }
    rows = [[model.name, *(cell(model, key) for key in shown)] for model in models]
    notes = [
        f"{head[:1].upper()}{head[1:]}, {bounds[key].guarantee('the forget questions')}."
        for key, head in shown.items()
        if key in bounds
    ]
    first = models[0].values
    drawn = f"{first['n_questions']} forget questions, {first['n']} answers each, seed {run.params.sample.seed}."
    below = " ".join([drawn, *notes, "The other columns are estimates."])
    return f"{marks.markdown(['model', *shown.values()], rows)}\n\n{below}"


def cell(model: RunModel, key: str) -> str:
    """The number of one column as text; a bound rounds itself."""
    found = model.value(key)
    bound: Bound | None = model.bounds.get(key)
    return bound.number() if bound is not None else number(found)


def passage_table(run: Run) -> str:
    """What every model of a run on passages continues, a row each."""
    rows = [
        {"model": model.name, **_passages(model.extraction)}
        for model in run.models
        if model.extraction
    ]
    if not rows:
        raise BadFile(
            "data/results", "holds no passages of these models", "Run a preset of passages first."
        )
    return marks.markdown(list(rows[0]), [list(row.values()) for row in rows])


def _passages(found: Extraction) -> dict[str, str]:
    p_z = found.p_z
    enough = f"{EXTRACTABLE:g} or more"
    ends = [found.interval(passage) for passage in found.searched]
    lower, upper = (
        np.array([(interval.lower, interval.upper_certain) for interval in ends if interval])
        .reshape(-1, 2)
        .T
    )
    return {
        "windows": f"{p_z.size}",
        f"p_z of {enough}": f"{(p_z >= EXTRACTABLE).sum()}",
        "longest run": f"{longest_run(p_z)[1]}",
        "p_z: mean": share(p_z.mean()),
        "largest": share(p_z.max()),
        "searched": f"{lower.size}",
        f"near-verbatim {enough}": f"{(lower >= EXTRACTABLE).sum()}",
        "mean, at least": share(lower.mean(), "lower") if lower.size else "-",
        "at most": share(upper.mean(), "upper") if lower.size else "-",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = marks.parser_of(__doc__)
    parser.add_argument(
        "--passages", action="store_true", help="what each model continues of a text"
    )
    parser.add_argument("--strips", type=Path, help="the PNG to draw: the windows of all models")
    options = parser.parse_args(arguments)
    run = load(config.load(options.folder / config.FILE), options.folder / "data", {})
    if options.passages:
        marks.put(options.write, "passages", passage_table(run))
    else:
        marks.put(options.write, "run", table(run))
    if options.strips:
        draw_strips(options.strips, [model.extraction for model in run.models if model.extraction])


if __name__ == "__main__":
    main()
