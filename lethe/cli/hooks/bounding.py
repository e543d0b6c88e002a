"""What `lethe bounds` adds: exports, a run in MLflow and a gate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.cli.files import exported, fresh
from lethe.cli.gates.gate import check_gate, gated, write_for_ci
from lethe.cli.gates.scores import gate_of_scores
from lethe.cli.hooks.logs import parameters_of
from lethe.cli.outcome import Arguments, Outcome, Values
from lethe.errors import BadInput, check
from lethe.io.files import write_json

if TYPE_CHECKING:
    from lethe.api import bounding


def bounds(
    call: Callable[..., bounding.Bounds],
    arguments: Arguments,
    to: Literal["inspect", "mlflow", "eee"] | None = None,
    out: Path | None = None,
    fail_above: float | None = None,
    summary: Path | None = None,
    junit: Path | None = None,
    all: bool = False,
) -> Outcome:
    """Write bounds for another tool, and gate on them.

    Parameters
    ----------
    to : inspect: write each prompt's bound as a record for its precomputed_scores to --out; mlflow: log a run in MLflow;
        eee: write a file of Every Eval Ever below the folder --out.
    out : The .json file of --to inspect, or the folder of --to eee. [default: SCORES.bounds.json; the current folder]
    summary : Append the gate as Markdown to this file, such as "$GITHUB_STEP_SUMMARY".
    junit : Write the gate as JUnit to this .xml file, a test case a question.
    all : Print the table of the prompts and every bound, not only the claim.
    """
    source = arguments["scores"]
    check_gate(fail_above, summary, junit)
    legal = "left out unless --to is inspect or eee"
    check(to in ("inspect", "eee") or out is None, "out", str(out), legal)
    result = call(**arguments)
    fixed = result.metric != "anytime_upper"
    check(to is None or fixed, "to", to, "left out for a run that stopped early")
    written: Values = {}
    if to == "inspect":
        written["inspect"] = _write_records(result, source, out)
    elif to == "mlflow":
        written["mlflow"] = _log_bounds(result, source)
    elif to == "eee":
        from lethe.api.exporting import export_bounds

        written["eee"] = exported(export_bounds(result, source, out or Path()))
    gate = None
    if fail_above is not None:
        gate = gate_of_scores(call, arguments, result, fail_above).naming(result.questions)
        write_for_ci(summary, junit, source.name, gate)
    return gated(result, gate, written, None if all else result.brief())


def _write_records(result: bounding.Bounds, source: Path, out: Path | None) -> str:
    """Write a record per prompt for all its epochs in Inspect, the upper bound with its guarantee; return the file."""
    from lethe.results.table import Numbers

    if result.refused:
        raise BadInput(f"{source}: no bound to write. {' '.join(result.refused)}")
    place = fresh("out", out or Path(f"{source.name}.bounds.json"), (".json",))
    records = []
    for name, numbers in result.questions.items():
        bounds = Numbers([row for row in numbers.rows if row.at is None]).bounds
        metadata: dict[str, object] = {key: bound.value for key, bound in bounds.items()}
        for key in ("n", "missing"):
            metadata[key] = numbers.values[key]
        metadata |= result.stated.as_json()
        bound = bounds[result.metric]
        record = {
            "id": name,
            "value": bound.value,
            "explanation": bound.sentence(result.metric),
            "metadata": metadata,
        }
        records.append(record)
    write_json(place, records)
    return str(place)


def _log_bounds(result: bounding.Bounds, source: Path) -> str:
    """Log a run in MLflow; return the sentence that says where."""
    from lethe.tracking import FromFile, log_file

    counts = {
        "questions": len(result.prompts),
        "answers": sum(prompt.n for prompt in result.prompts),
        "missing": sum(prompt.missing for prompt in result.prompts),
    }
    params: dict[str, object] = {"alpha": result.settings.alpha}
    if result.refused:
        params["refused"] = " ".join(result.refused)
    params |= result.stated.as_json()
    if result.log:
        params |= parameters_of(result.log.log)
    bounds = result.model.bounds
    return log_file(FromFile(source.name, counts, bounds, params, result.to_frame()))
