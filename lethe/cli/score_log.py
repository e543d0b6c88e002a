"""`lethe score LOG`: the texts of a log of another tool, scored anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import plural

if TYPE_CHECKING:
    from lethe.evaluation.log_texts import ScoredLog


def command(
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="A log of another tool; `lethe log` lists the formats.")
    ],
    data: Annotated[
        Path, typer.Option(metavar="ROWS", help="The references: JSON lines with id, question, answer, keywords.")
    ],
    scorer: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A scorer or judge; repeatable. [default: rouge_l]")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table",
            "--out",
            metavar="OUT",
            help="A .csv or .parquet file; a .json file with --to inspect. [default: LOG.scores.parquet or .json, here]",
        ),
    ] = None,
    to: Annotated[
        Literal["table", "inspect", "mlflow"],
        typer.Option(
            help="table; inspect: records for its precomputed_scores; mlflow: the table, and a run in MLflow with the means."
        ),
    ] = "table",
    filter: Annotated[str | None, typer.Option(metavar="NAME", help="One filter of an lm-eval log.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Score every answer of a log, and write the scores as a table for `lethe bounds`.

    The table has `prompt_id, sample` and one column per scorer. A missing answer has an empty cell: pass
    `--missing worst` to `lethe bounds`. A row belongs to a prompt by its id, else by its question.

    Example: `lethe score samples_forget_qa_2026-01-01T00-00-00.jsonl --scorer rouge_l --data forget.jsonl`
    """
    from lethe.data.rows import read_rows
    from lethe.errors import BadValue
    from lethe.evaluation.log_texts import score_log
    from lethe.io.logs import read_log

    endings = (".json",) if to == "inspect" else (".parquet", ".csv")
    out = Path(f"{log.name}.scores{endings[0]}") if table is None else table
    if out.suffix.lower() not in endings or out.is_dir():
        raise BadValue("--table", str(out), f"a file that ends in {' or '.join(endings)}")
    for given in (log, data):
        if out.exists() and given.exists() and out.samefile(given):
            raise BadValue("--table", str(out), "another file than the log and the rows")
    names = list(dict.fromkeys(scorer or ["rouge_l"]))
    found = score_log(read_log(log, filter), read_rows(data), names, str(data))
    _write(found, out)
    run = _logged(found) if to == "mlflow" else None
    if as_json:
        read = found.log.summary()
        print_json(
            {
                "log": {
                    key: read[key] for key in ("format", "tool", "task", "model", "sampling", "answers", "missing")
                },
                "matched_by": found.matched_by,
                "table": str(out),
                "scores": {
                    name: {"scored": scored, "missing": missing, "mean": mean}
                    for name, scored, missing, mean in found.rows()
                },
                "warnings": found.warnings(),
                "mlflow": run,
            }
        )
        return
    answers = f"{plural(len(found.log.answers), 'answer')} to {plural(len(found.log.prompts), 'prompt')}"
    notes = [
        f"{found.log.tool}: {answers}, matched by {found.matched_by}.",
        *(f"warning   {one}" for one in found.warnings()),
        f"The records are in {out}: inspect score {log} --scorer precomputed_scores -S scores={out}"
        if to == "inspect"
        else f"The scores are in {out}: lethe bounds {out} --score {names[0]} --missing worst",
        *([run] if run else []),
    ]
    print_table(str(log), ["scorer", "scored", "missing", "mean"], found.rows(), notes)


def _write(found: ScoredLog, out: Path) -> None:
    from lethe.evaluation.records import score_records
    from lethe.io.json_files import write_json
    from lethe.io.tables import write_csv, write_parquet

    if out.suffix.lower() == ".json":
        write_json(out, score_records(found))
    elif out.suffix.lower() == ".csv":
        write_csv(out, found.table)
    else:
        write_parquet(out, found.table)


def _logged(found: ScoredLog) -> str:
    from lethe.tracking.bounded import log_bounded

    numbers: dict[str, float] = {}
    for name, scored, missing, mean in found.rows():
        numbers |= {f"{name}_scored": scored, f"{name}_missing": missing}
        numbers |= {} if mean is None else {f"{name}_mean": mean}
    log = found.log
    params = {"tool": log.tool, "task": log.task, "model": log.model, **log.sampling}
    return log_bounded(log.path.name, numbers, {}, params, found.table, Path.cwd())
