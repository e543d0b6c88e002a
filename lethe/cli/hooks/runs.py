"""What `lethe compare` adds: gates on two sides, and a page of the comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.cli.files import fresh
from lethe.cli.gates.gate import check_files, check_gate, write_for_ci
from lethe.cli.gates.sides import closed_gates, gates_of_sides
from lethe.cli.outcome import Arguments, Outcome, Values
from lethe.errors import BadInput, BadValue
from lethe.io.files import write_text

if TYPE_CHECKING:
    from lethe.api import runs


def compare(
    call: Callable[..., runs.ShownComparison],
    arguments: Arguments,
    fail_on: Literal["worse"] | None = None,
    require: Literal["not-worse"] | None = None,
    fail_above: float | None = None,
    page: Path | None = None,
    summary: Path | None = None,
    junit: Path | None = None,
) -> Outcome:
    """Gate on a comparison, and write a page of it.

    Parameters
    ----------
    fail_on : worse: exit with status 1 where B is worse on some question or on average, wrong with probability at most
        alpha.
    require : not-worse: exit with status 1 unless B is proved worse by at most --by on every question of both sides.
    fail_above : Exit with status 1 unless the bound certifies that every question leaks at most this in B.
    page : Also write a page to this .html file.
    summary : Append the gates as Markdown to this file, such as "$GITHUB_STEP_SUMMARY".
    junit : Write the gates as JUnit to this .xml file, a test case a question of B and a gate.
    """
    if page is not None:
        fresh("page", page, (".html", ".htm"))
    if require and "by" not in arguments:
        raise BadValue(
            "require", require, "given with --by D, the largest difference that is allowed"
        )
    check_gate(fail_above)
    options = {"--fail-on": fail_on, "--require": require, "--fail-above": fail_above}
    asked = {name: value for name, value in options.items() if value is not None}
    legal = "given with --fail-on, --require or --fail-above"
    check_files(bool(asked), legal, summary, junit)
    sides = [arguments.pop("a"), *arguments.pop("more", ())]
    if "b" in arguments:
        sides.insert(1, arguments.pop("b"))
    if len(sides) != 2:
        for name, value in asked.items():
            raise BadValue(name, value, "left out unless two sides are named")
    if fail_above is not None:
        arguments["worst"] = True
    comparison = call(*sides, **arguments)
    record = comparison.record
    json: Values = {}
    notes = []
    if page is not None:
        from lethe.report.pages import comparison_page

        write_text(page, comparison_page(comparison))
        json["page"] = str(page)
        notes.append(f"The page is {page}.")
    if not asked:
        return Outcome(comparison, json, notes)

    if record["refused"] or record["unpointed"]:
        gates = closed_gates(comparison, asked)
    elif comparison.per_question:
        gates = gates_of_sides(call, sides, arguments, comparison, asked)
    else:
        gates_asked = " ".join(f"{name} {value}" for name, value in asked.items())
        reasons = dict.fromkeys(entry["reason"] for entry in record["not_compared"])
        problem = f"no question could be compared ({'; '.join(reasons)})"
        return Outcome(comparison, json, notes, error=BadInput(f"{gates_asked}: {problem}."))
    write_for_ci(summary, junit, record["b"], gates.gate, gates.decisions)
    return Outcome(comparison, json | gates.json, [*notes, *gates.notes], int(gates.is_closed))
