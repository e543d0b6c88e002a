"""`lethe study seeds`: the pipeline once per seed, and what all seeds show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import plural

if TYPE_CHECKING:
    from lethe.statistics.bound import Bound
    from studies.seeds.summary import ClaimCount, SeedSummary, Spread


def command(
    count: Annotated[int, typer.Option(min=1, help="Number of seeds: 0 to COUNT - 1.")] = 5,
    set_: Annotated[
        list[str] | None,
        typer.Option("-S", "--set", metavar="KEY=VALUE", help="Change a value for every seed; repeatable."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Stages at once. Default: as many as cores.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Run nothing; summarise the finished seeds.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run the pipeline once per seed, and print the median and the range of each number over the seeds.

    Seed 0 is params.yaml as it is; seed i adds 10 i to data.seed, train.recipe.seed, unlearn.recipe.seed and sample.seed.
    Each seed has a folder in .lethe/seeds, and params.yaml stays as it is. A second call continues an interrupted one.

    Example: `lethe study seeds --count 5 -S exact=null`
    """
    from flows import workspace
    from flows.server import require, temporary_server
    from lethe.config.yaml import parse
    from lethe.errors import LetheError

    root = Path.cwd()
    common = list(map(parse, set_ or []))
    workspace.prepare(root)
    failed: dict[str, str] = {}
    with temporary_server(root):
        from studies.seeds.runs import FOLDER, points, read_seeds, run_seeds

        chosen = points(root, count)
        if not summary:
            require()
            with workspace.only_run(root / FOLDER):
                failed = run_seeds(root, chosen, jobs, common)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
    error = LetheError(
        f"{len(failed)} of {plural(count, 'seed')} failed. {reasons}. `lethe study seeds` continues with what is left."
    )
    if len(failed) == count:
        raise error
    result = read_seeds(root, chosen)
    if as_json:
        print_json(as_object(result, failed))
    for table in [] if as_json else [model_table(result, count), claim_table(result)]:
        if markdown:
            typer.echo(as_markdown(table))
        else:
            print_table(table.title, table.columns, table.rows, table.notes)
    if failed:
        raise error


@dataclass(frozen=True)
class Table:
    """A table for people, of cells that are text."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]


def as_markdown(table: Table) -> str:
    """The table as Markdown, the notes below it."""
    rule = ["---"] * len(table.columns)
    rows = ["| " + " | ".join(cells) + " |" for cells in (table.columns, rule, *table.rows)]
    return "\n".join([f"{table.title}:", "", *rows, "", *table.notes])


def as_object(found: SeedSummary, failed: Mapping[str, str]) -> dict[str, object]:
    """The summary for machines."""
    return {
        "seeds": found.seeds,
        "failed": failed,
        "models": found.models,
        "bounds": {key: bound.guarantee_dict() for key, bound in found.bounds.items()},
        "claims": found.claims,
    }


def model_table(found: SeedSummary, count: int) -> Table:
    """Each model over the seeds."""
    shown = list(dict.fromkeys(key for model in found.models for key in model.columns))
    notes = [
        f"{key}: {bound.relation} so much {bound.guarantee('the forget questions')}, in each run by itself."
        for key in shown
        if (bound := found.bounds.get(key))
    ]
    return Table(
        f"Median (lowest to highest) over {len(found.seeds)} of {plural(count, 'seed')}",
        ["model", *shown, "forgetting, utility: seeds"],
        [
            [
                model.model,
                *(cell(model.columns.get(key), found.bounds.get(key)) for key in shown),
                "; ".join(f"{words}: {seeds}" for words, seeds in model.words.items()),
            ]
            for model in found.models
        ],
        [*notes, "Medians and ranges describe the runs. They are no bounds."],
    )


def claim_table(found: SeedSummary) -> Table:
    """In how many seeds each claim held."""
    return Table(
        f"In how many of {plural(len(found.seeds), 'seed')} each claim held",
        ["claim", "for every model", "for one or more", "holds: seeds per model", "the opposite: seeds per model"],
        [
            [row.claim, str(row.every), str(row.some), listed(row.models, "holds"), listed(row.models, "opposite")]
            for row in found.claims
        ],
        [],
    )


def listed(counts: Sequence[ClaimCount], how: Literal["holds", "opposite"]) -> str:
    """The models for which a claim came out so, each with its number of seeds, the highest first."""
    seeds = {count.model: getattr(count, how) for count in counts}
    return (
        ", ".join(f"{name} {seeds[name]}" for name in sorted(seeds, key=lambda name: -seeds[name]) if seeds[name])
        or "-"
    )


def cell(spread: Spread | None, bound: Bound | None) -> str:
    """Median and range in one cell; a bound's values are rounded away from its claim."""
    from lethe.text import NONE

    if spread is None:
        return NONE
    values = (spread.median, spread.low, spread.high)
    middle, low, high = (
        replace(bound, value=value).significant(3) if bound else f"{value:.3g}" for value in values
    )
    return middle if low == high else f"{middle} ({low} to {high})"
