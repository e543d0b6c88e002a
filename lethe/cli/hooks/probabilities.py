"""What `lethe exact` and `lethe extract` add: work that is kept, a gate, exports and a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.cli.files import check_export, exported, fresh
from lethe.cli.gates.gate import check_gate, gated, write_for_ci
from lethe.cli.gates.trees import gate_of_trees
from lethe.cli.outcome import Arguments, Outcome, Values

if TYPE_CHECKING:
    from lethe.api import probabilities


SCRATCH = Path(".lethe/scratch")  # finished questions of `lethe exact`


def exact(
    call: Callable[..., probabilities.ExactBounds],
    arguments: Arguments,
    fail_above: float | None = None,
    to: Literal["eee"] | None = None,
    out: Path | None = None,
    summary: Path | None = None,
    junit: Path | None = None,
) -> Outcome:
    """Keep finished questions, so that an interrupted call resumes, and gate on them.

    Parameters
    ----------
    to : eee: also write the numbers as a file of Every Eval Ever.
    out : The folder of --to eee. [default: the current folder]
    summary : Append the gate as Markdown to this file, such as "$GITHUB_STEP_SUMMARY".
    junit : Write the gate as JUnit to this .xml file, a test case a question.
    """
    check_gate(fail_above, summary, junit)
    check_export(to, out)
    result = call(**arguments, scratch=SCRATCH)
    written: Values = {}
    if to == "eee":
        from lethe.api.exporting import export_trees

        place = (arguments["model"], arguments["data"], out or Path())
        prompt = arguments.get("prompt")
        if prompt is not None:
            prompt = str(prompt)
        written["eee"] = exported(export_trees(result, *place, prompt))
    gate = None
    if fail_above is not None:
        trees = result.certificates
        items = [*trees.skipped, *(tree.id for tree in trees.trees)]
        gate = gate_of_trees(result, arguments, fail_above).naming(items)
        write_for_ci(summary, junit, arguments["model"].name, gate)
    return gated(result, gate, written)


def extract(
    call: Callable[..., probabilities.Extracted], arguments: Arguments, page: Path | None = None
) -> Outcome:
    """Keep finished windows, so that an interrupted call resumes, and write a page.

    Parameters
    ----------
    page : Also write the text as a strip of colour, with its passages, to this .html file; a .png beside it has the strip.
    """
    if page is not None:
        fresh("page", page, (".html", ".htm"))
    extracted = call(**arguments, scratch=SCRATCH)
    if page is None:
        return Outcome(extracted)
    from lethe.report.pages import write_extraction

    texts = (extracted.extraction, *extracted.references)
    html, picture = map(
        str, write_extraction(page, texts, extracted.headline(), extracted.sentences())
    )
    return Outcome(
        extracted, {"page": html, "picture": picture}, [f"The page is {html}, its strip {picture}."]
    )
