"""What `lethe log` and `lethe score log` add: tables, records for Inspect and runs in MLflow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.cli.files import fresh, write_rows
from lethe.cli.outcome import Arguments, Outcome
from lethe.io.files import write_json

if TYPE_CHECKING:
    from lethe.api import logs
    from lethe.io.logs._log import Log


def read_log(
    call: Callable[..., logs.ShownLog], arguments: Arguments, table: Path | None = None
) -> Outcome:
    """Write the answers of a log.

    Parameters
    ----------
    table : Write the answers with their scores to this .csv file: `prompt_id, sample, text` and one column per score. An
        unscored answer has an empty cell, and `finish_reason` says why an answer is missing. A text that a spreadsheet
        would compute (`=1+2`) begins with an apostrophe, and a control character becomes an escape.
    """
    if table is None:
        return Outcome(call(**arguments))
    fresh("table", table, (".csv",))
    from lethe.measure.scored_log import with_reasons

    result = call(**arguments)
    write_rows(table, with_reasons(result, result.table()))
    return Outcome(result, notes=[f"The answers are in {table}."])


def score_log(
    call: Callable[..., logs.ShownScoredLog],
    arguments: Arguments,
    table: Path | None = None,
    to: Literal["table", "inspect", "mlflow"] = "table",
) -> Outcome:
    """Write the scores of a log.

    Parameters
    ----------
    table : A .csv or .parquet file; a .json file with --to inspect. [default: LOG.scores.parquet or .json, here]
    to : table; inspect: records for its precomputed_scores; mlflow: the table, and a run in MLflow with the means.
    """
    endings = (".json",) if to == "inspect" else (".parquet", ".csv")
    out = table or Path(f"{arguments['log'].name}.scores{endings[0]}")
    fresh("table", out, endings)
    result = call(**arguments, scratch=Path(".lethe/verdicts"))
    if to == "inspect":
        write_json(out, _records(result))
    else:
        write_rows(out, result.table)
    run = None
    if to == "mlflow":
        from lethe.tracking import FromFile, log_file

        numbers: dict[str, float] = {}
        for name, scored, missing, mean in result.rows():
            numbers[f"{name}_scored"] = scored
            numbers[f"{name}_missing"] = missing
            if mean is not None:
                numbers[f"{name}_mean"] = mean
        log = result.log
        run = log_file(FromFile(log.path.name, numbers, {}, parameters_of(log), result.table))
    if to == "inspect":
        scores = f"--scorer precomputed_scores -S scores={out}"
        notes = [f"The records are in {out}: inspect score {arguments['log']} {scores}"]
    else:
        bounds = f"lethe bounds {out} --score {result.scorers[0]} --missing worst"
        notes = [f"The scores are in {out}: {bounds}"]
    if run is not None:
        notes.append(run)
    return Outcome(result, {"table": str(out), "mlflow": run}, notes)


def _records(scored: logs.ShownScoredLog) -> list[dict[str, object]]:
    """One record per scored answer for Inspect, whose value with several scorers is an object, as its ``metrics`` must be
    then; a missing answer has none, so Inspect leaves it unscored.
    """
    records: list[dict[str, object]] = []
    for row in scored.table.dropna(subset=list(scored.scorers)).to_dict("records"):
        value: object = {name: row[name] for name in scored.scorers}
        if len(scored.scorers) == 1:
            value = row[scored.scorers[0]]
        records.append({"id": row["prompt_id"], "epoch": row["sample"], "value": value})
    return records


def parameters_of(log: Log) -> dict[str, object]:
    """What a log states of its run, as params of MLflow."""
    return {"tool": log.tool, "task": log.task, "model": log.model, **log.sampling}
