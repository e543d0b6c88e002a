"""`lethe study meta-evaluation`: which number about forgetting to believe, on models whose knowledge is known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.console import JsonFlag, print_json, print_table

if TYPE_CHECKING:
    from studies.meta_evaluation.worth import MetaResult

PRESETS = Path(__file__).parents[1] / "presets"
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
    as_json: JsonFlag = False,
) -> None:
    """Train models with and without the forget set, unlearn, attack, and measure what every number of Lethe is worth.

    For each number: how well it tells models that know from models that do not (AUC), whether it survives relearning and
    quantisation, whether it predicts what comes back, and its cost. params.yaml stays as it is. A second call continues an
    interrupted one. Writes result.json, numbers.parquet and a page to data/meta/NAME.

    Examples: `lethe study meta-evaluation --preset meta-authors`, and on fresh seeds
    `lethe study meta-evaluation --preset meta-authors -S meta_evaluation.seed=1 --name meta-authors-1`
    """
    from lethe.config import FILE
    from lethe.config.yaml import changed_document, parse, read_preset
    from lethe.errors import BadValue
    from lethe.process import cores
    from studies.meta_evaluation.settings import validate
    from studies.meta_evaluation.work import gather, write
    from studies.meta_evaluation.workshop import Workshop

    called = name or preset or "meta-evaluation"
    if not NAME.fullmatch(called):
        raise BadValue("--name", called, "letters, digits, - and _")
    changes = [*(read_preset(PRESETS, preset).items() if preset else ()), *map(parse, set_ or ())]
    shop = Workshop(validate(changed_document(changes), f"params.yaml with {preset}" if preset else FILE))
    result, results = gather(shop, at_once or cores())
    folder = write(called, shop, result, results)
    if as_json:
        print_json({"name": called, **result.as_json()})
    else:
        show(called, result, folder)


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
