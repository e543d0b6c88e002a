"""`lethe compare`: two runs, question by question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import plural


def command(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="The earlier side: a log, a table of scores, a data folder, or a git revision or experiment.",
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The later side, of any of these kinds.")],
    alpha: Annotated[
        float, typer.Option(help="The list of differences has a false entry with at most this probability.")
    ] = 0.05,
    score: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The score. [default: the 0/1 scorer, or the first of a log]"),
    ] = None,
    filter: Annotated[str | None, typer.Option(metavar="NAME", help="One filter of lm-eval logs.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A model of data folders; repeatable. [default: all]")
    ] = None,
    fail_on: Annotated[
        Literal["worse"] | None,
        typer.Option(help="worse: exit status 1 where B is worse and the difference holds."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page to this .html file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Which questions leak more or less in B than in A, over all questions together, with the effect and its interval.

    A difference holds after Holm's correction over all questions. Each interval holds at alpha by itself. The average is a
    claim by itself. Higher scores are worse. Questions with another text, prompt or scorer are named and not compared.
    Answers of the two sides may share random numbers: neither independence between the sides nor a pairing is assumed.

    With --fail-on worse, a comparison without any question in common is an error, with exit status 2.

    Example: `lethe compare HEAD~1 data --fail-on worse`

    Example: `lethe compare before.eval after.eval --score includes --page change.html`
    """
    from lethe.errors import BadInput, BadValue
    from lethe.evaluation.compared import compare
    from lethe.evaluation.sides import read_side

    if page is not None and (page.suffix.lower() not in (".html", ".htm") or page.is_dir()):
        raise BadValue("--page", str(page), "a file that ends in .html")
    sides = [read_side(given, score, filter, model or []) for given in (a, b)]
    kinds = {side.kind for side in sides}
    if filter is not None and "log" not in kinds:
        raise BadValue("--filter", filter, "left out: neither side is an lm-eval log")
    if model and kinds <= {"log", "table"}:
        raise BadValue("--model", ", ".join(model), "left out: neither side is a data folder or a revision")
    found = compare(sides[0], sides[1], alpha)
    if page is not None:
        from lethe.io.atomic import write_text
        from lethe.report.compare_page import render

        write_text(page, render(found))
    if as_json:
        print_json(found.as_json() | ({"page": str(page)} if page else {}))
    else:
        head, rows = found.table()
        notes = found.sentences()
        if len(found.per_question) > len(rows):
            notes.append(f"{plural(len(found.per_question) - len(rows), 'more question')}: see --json or --page.")
        if page is not None:
            notes.append(f"The page is {page}.")
        print_table(f"{a} and {b}", head, rows, notes)
    if fail_on == "worse":
        if not found.per_question:
            reasons = "; ".join(dict.fromkeys(one.reason for one in found.not_compared))
            raise BadInput(f"--fail-on worse: no question could be compared ({reasons}).")
        if found.worse:
            raise typer.Exit(1)
