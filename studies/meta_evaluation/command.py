"""`lethe study meta-evaluation`: which number about forgetting to believe, on models whose knowledge is known."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import SharingScheduler
from lethe.cli.console import JsonFlag, print_json, print_table

if TYPE_CHECKING:
    from studies.meta_evaluation.worth import MetaResult

PRESETS = Path(__file__).parents[1] / "presets"
BATCH = 5  # models per process
NAME = re.compile(r"[A-Za-z0-9_-]+")


def command(
    preset: Annotated[
        str | None, typer.Option(help="A preset with a section meta_evaluation. [default: params.yaml as it is]")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("-S", "--set", metavar="KEY=VALUE", help="Change a value for this run; repeatable."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name: data/meta/NAME. [default: the preset, or meta-evaluation]")
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Processes at once. Default: as many as cores.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Models per process.")] = BATCH,
    scheduler: SharingScheduler = None,
    as_json: JsonFlag = False,
) -> None:
    """Train models with and without the forget set, unlearn, attack, and say what every number of Lethe is worth.

    For each number: how well it tells models that know from models that do not (AUC), whether it survives relearning and
    quantisation, whether it predicts what comes back, and its cost. params.yaml stays as it is. A second call continues an
    interrupted one. Writes result.json,
    numbers.parquet and a page to data/meta/NAME.

    Examples: `lethe study meta-evaluation --preset meta-authors`, and on fresh seeds
    `lethe study meta-evaluation --preset meta-authors -S meta_evaluation.seed=1 --name meta-authors-1`
    """
    from flows import workspace
    from flows.server import require, temporary_server
    from lethe import config
    from lethe.config.assignments import parse
    from lethe.config.presets import changed_document, read_preset
    from lethe.errors import BadValue
    from lethe.process import cores
    from studies.meta_evaluation.gathering import gather, write
    from studies.meta_evaluation.settings import validate
    from studies.meta_evaluation.shards import Shards

    root = Path.cwd()
    called = name or preset or "meta-evaluation"
    if not NAME.fullmatch(called):
        raise BadValue("--name", called, "letters, digits, - and _")
    document = changed_document(
        [*(read_preset(PRESETS, preset).items() if preset else ()), *map(parse, set_ or ())]
    )
    params = validate(document, f"params.yaml with {preset}" if preset else config.FILE)
    shards = Shards(params)
    shards.workshop.models  # noqa: B018  # a mistake in the pools ends here, before anything runs
    workspace.prepare(root)
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "error")  # Dask logs every step
    with temporary_server(root):
        require()
        from studies.meta_evaluation.flow import FOLDER, run, write_params

        with workspace.only_run(root / FOLDER / called):
            place = write_params(root, called, document)
            run(root, place, shards, at_once or cores(), batch, scheduler)
    result, found = gather(shards)
    folder = write(called, shards, result, found, root)
    if as_json:
        print_json({"name": called, **result.as_json()})
        return
    show(called, result, folder.relative_to(root))


def show(name: str, result: MetaResult, folder: Path) -> None:
    """Print the table, the sentences and the claims."""
    from studies.meta_evaluation.page import TERMINAL, claim_sentence, guarantee, rows, sentences

    claims = [f"{one.text}: {one.verdict}. {claim_sentence(one)}" for one in result.claims]
    print_table(
        f"Meta-evaluation {name}: {sum(result.knows.values())} models that know, "
        f"{sum(result.lacks.values())} that lack, {sum(result.unlearned.values())} unlearned",
        [column.terminal for column in TERMINAL],
        rows(result, TERMINAL),
        [guarantee(result), *sentences(result), *claims, f"The page: {folder}/index.html"],
    )
