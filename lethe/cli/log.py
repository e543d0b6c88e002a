"""`lethe log`: what a log of another tool holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import plural


def command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A log of lm-eval, Inspect, Leak-k, open-unlearning, HarmBench or JailbreakBench, whatever its name.",
        ),
    ],
    table: Annotated[
        Path | None, typer.Option(metavar="OUT.csv", help="Write the answers with their scores to this file.")
    ] = None,
    filter: Annotated[str | None, typer.Option(metavar="NAME", help="One filter of an lm-eval log.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Tool, task, model, settings of sampling, answers, scores, and what is missing, of a log of another tool.

    The table has `prompt_id, sample, text` and one column per score; an unscored answer has an empty cell. A text that a
    spreadsheet would compute (`=1+2`) begins with an apostrophe, and a control character becomes an escape.

    Example: `lethe log samples_forget_qa_2026-01-01T00-00-00.jsonl --table answers.csv`
    """
    from lethe.errors import BadValue
    from lethe.io.logs import read_log
    from lethe.io.tables import write_csv

    if table is not None and (table.suffix.lower() != ".csv" or table.is_dir()):
        raise BadValue("--table", str(table), "a file that ends in .csv")
    if table is not None and table.exists() and file.exists() and table.samefile(file):
        raise BadValue("--table", str(table), "another file than the log itself")
    log = read_log(file, filter)
    if table is not None:
        write_csv(table, log.answers)
    summary = log.summary()
    if as_json:
        print_json(summary)
        return
    rows = [[name, *score.values()] for name, score in log.score_counts().items()]
    per_prompt = log.prompts["answers"]
    least, most = per_prompt.min(), per_prompt.max()
    asked = f"{plural(len(log.prompts), 'prompt')}, {'' if least == most else f'{least} to '}{plural(most, 'answer')} each"
    sampling = ", ".join(f"{name} {value}" for name, value in log.sampling.items())
    missing = ", ".join(f"{count} {reason}" for reason, count in log.missing.items())
    lines = [
        ("tool", f"{log.tool} (format {log.format})"),
        ("task", log.task or "not stated"),
        ("model", log.model or "not stated"),
        ("sampling", sampling or "not stated"),
        ("answers", f"{len(log.answers)}: {asked}"),
        ("missing", missing or "nothing"),
        ("refused", log.refusal),
        *(("warning", warning) for warning in log.warnings),
        *(("note", note) for note in log.notes),
    ]
    notes = [f"{name:<9} {text}" for name, text in lines if text]
    if table is not None:
        notes.append(f"The answers are in {table}.")
    print_table(str(file), ["score", "scored", "unscored", "mean"], rows, notes)
