"""`lethe bounds`: what a file of scores says of the whole output distribution."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lethe.cli.console import JsonFlag, TableOption, print_json, print_table, write_table
from lethe.errors import plural

if TYPE_CHECKING:
    from lethe.evaluation.log_scores import LogScores
    from lethe.evaluation.measure_settings import MeasureSettings
    from lethe.evaluation.prompts import PromptMeasures


def command(
    scores: Annotated[
        Path,
        typer.Argument(
            help="CSV, Parquet or JSON lines with `score` and optional `prompt_id`; or a log of another tool, such as "
            "lm-eval or Inspect, found by its content (see `lethe log`)."
        ),
    ],
    alpha: Annotated[float, typer.Option(help="Each bound fails with at most this probability.")] = 0.01,
    threshold: Annotated[
        list[float] | None, typer.Option(help="Bound P(score > X); repeatable. [default: .1 .25 .5 .75 .9]")
    ] = None,
    missing: Annotated[
        Literal["worst", "drop"] | None,
        typer.Option(
            help="worst: a missing score counts against each bound; drop: leave it out. [default: an error; of a log: worst]"
        ),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of a log, the score [default: its first]; of a table, the column."),
    ] = None,
    filter: Annotated[str | None, typer.Option(metavar="NAME", help="One filter of an lm-eval log.")] = None,
    to: Annotated[
        Literal["inspect", "mlflow"] | None,
        typer.Option(
            help="inspect: each prompt's bound as a record for its precomputed_scores, in --out; mlflow: a run in MLflow."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The .json file of --to inspect. [default: SCORES.bounds.json]"),
    ] = None,
    together: Annotated[
        Literal["none", "bonferroni", "holm"],
        typer.Option(
            help="bonferroni: bounds that hold for all prompts together; holm: the list of prompts certified under 0.1, "
            "no false one in it. JSON: further key `together` with correction, metric, alpha, threshold, "
            "every_prompt_under, certified, bounds (of Bonferroni), covers, assumes, method."
        ),
    ] = "none",
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Answers with `label` (a person's) and `verdict` (the judge's), both 0 or 1, which measure the error of the "
            "judge whose verdicts the scores are. JSON: `judged` with lower, upper, sensitivity, false_positive, alpha, "
            "estimate, fits, leak_at_k, of each prompt and of the pool."
        ),
    ] = None,
    table: TableOption = None,
    as_json: JsonFlag = False,
) -> None:
    """High-probability bounds on the leakage of each prompt, the worst prompt, and the pool, from sampled scores.

    One row per sampled answer, in sampling order: the sharper bounds bet on one answer after the other. Rows of sample -1,
    the greedy answer, are left out.

    Leak@k, for scores that are all 0 or 1, is the probability that at least one of k answers leaks. Lead with its band:
    each side holds at alpha for all k at once, while the estimate has no guarantee and nears 1 as k nears n.

    The JSON keys m_sigma and m_mu_lower keep their published forms: m_sigma may exceed .5, which no sd of such scores
    does, and m_mu_lower is 0 for scores of 0 and 1. `tighter` has the sharper bounds.

    With --calibration the bounds of true leaks follow those of verdicts: the judge's sensitivity and false positive
    rate and the share of verdicts share alpha in thirds. With --missing worst, the values over the judged scores alone are
    the JSON key `judged_alone`.

    A log of another tool adds the key `log`: format, tool, answers, missing and more. Answers that are copies are refused.
    A run that a rule could stop early gets only anytime-valid values: the others are null, with the reason.

    Example: `lethe bounds scores.csv --alpha 0.01 --threshold 0.5`

    Example: `lethe bounds logs/2026-01-01_forget-qa.eval --score includes`
    """
    from lethe.api.bounding import calibration_of
    from lethe.errors import BadValue
    from lethe.evaluation import score_files
    from lethe.evaluation.log_scores import read_any_scores
    from lethe.evaluation.measure_settings import THRESHOLDS, MeasureSettings
    from lethe.evaluation.score_files import measure_file

    given = read_any_scores(scores, missing, score, filter)
    prompts, read = given.prompts, given.log.sentences() if given.log else []
    settings = MeasureSettings(
        alpha=alpha,
        thresholds=threshold or THRESHOLDS,
        missing=given.missing,
        together=together,
        calibration=calibration_of(calibration, given.missing),
    )
    if given.log and given.log.stopped_early:
        if to is not None:
            raise BadValue("--to", to, "left out for a run that stopped early")
        _print_stopped(scores, given.log, settings, table, as_json)
        return
    measures = measure_file(prompts, settings)
    write_table(table, score_files.rows_of(scores.stem, measures))
    written = _write(scores, measures, given.log, to, out)
    if as_json:
        print_json(score_files.as_json(measures) | ({"log": given.log.as_json()} if given.log else {}) | written)
        return
    columns, rows = measures.table()
    notes = measures.sentences()
    if len(prompts) > len(rows):
        notes.append(f"{plural(len(prompts) - len(rows), 'more prompt')}: see --json.")
    if absent := sum(prompt.missing for prompt in prompts):
        rule = (
            "each counts against each bound"
            if settings.missing == "worst"
            else "left out, as if missing at random"
        )
        notes.append(f"{plural(absent, 'missing score')}: {rule}; plain statistics are over the judged ones.")
    print_table(str(scores), columns, rows, read + notes + list(written.values()))


def _write(
    path: Path, measures: PromptMeasures, log: LogScores | None, to: str | None, out: Path | None
) -> dict[str, str]:
    """Write for another tool; returns what was written, by the tool."""
    from lethe.errors import BadValue

    if to != "inspect" and out is not None:
        raise BadValue("--out", str(out), "left out unless --to is inspect")
    if to == "inspect":
        from lethe.evaluation.records import bound_records
        from lethe.io.json_files import write_json

        place = out or Path(f"{path.name}.bounds.json")
        if place.suffix.lower() != ".json" or (place.exists() and place.samefile(path)):
            raise BadValue("--out", str(place), "a file that ends in .json, another than the scores")
        write_json(place, bound_records(measures))
        return {"inspect": str(place)}
    if to == "mlflow":
        from lethe.evaluation.score_files import to_mlflow

        read = log.log if log else None
        params = {"tool": read.tool, "task": read.task, "model": read.model, **read.sampling} if read else {}
        return {"mlflow": to_mlflow(path.name, measures, params)}
    return {}


def _print_stopped(
    path: Path, log: LogScores, settings: MeasureSettings, table: Path | None, as_json: bool
) -> None:
    from lethe.errors import BadValue
    from lethe.evaluation.score_files import rows_of
    from lethe.evaluation.stopped_prompts import measure_stopped

    if settings.together != "none":
        raise BadValue("--together", settings.together, "none for a run that stopped early")
    if settings.calibration is not None:
        raise BadValue("--calibration", "a file", "left out for a run that stopped early")
    measures = measure_stopped(log.prompts, settings)
    write_table(table, rows_of(path.stem, measures))
    if as_json:
        print_json(measures.as_json() | {"log": log.as_json()})
        return
    columns, rows = measures.table()
    more = len(measures.prompts) - len(rows)
    notes = [
        *log.sentences(),
        *measures.sentences(),
        *([f"{plural(more, 'more prompt')}: see --json."] if more else []),
    ]
    print_table(str(path), columns, rows, notes)
