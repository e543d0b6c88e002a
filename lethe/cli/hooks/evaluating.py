"""What `lethe eval` and `lethe sample` add: a folder that resumes, a gate, exports, and answers in a file with scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.cli.files import check_export, exported, fresh, write_rows
from lethe.cli.gates.answers import gate_of_answers
from lethe.cli.gates.gate import check_gate, gated, write_for_ci
from lethe.cli.outcome import Arguments, Outcome, Values
from lethe.config.measuring import EXACT
from lethe.errors import BadInput, BadValue

if TYPE_CHECKING:
    from lethe.api import evaluating
    from lethe.io.artifacts import Row


def evaluate(
    call: Callable[..., evaluating.Evaluation],
    arguments: Arguments,
    fail_above: float | None = None,
    to: Literal["eee"] | None = None,
    out: Path | None = None,
    summary: Path | None = None,
    junit: Path | None = None,
    all: bool = False,
) -> Outcome:
    """Keep the results in data/eval/NAME, so that an interrupted call resumes there, and gate on them.

    Parameters
    ----------
    to : eee: also write the numbers and the answers as files of Every Eval Ever.
    out : The folder of --to eee. [default: the current folder]
    summary : Append the gate as Markdown to this file, such as "$GITHUB_STEP_SUMMARY".
    junit : Write the gate as JUnit to this .xml file, a test case a question.
    all : Print the table of the numbers, not only the word and the worst question.
    """
    check_gate(fail_above, summary, junit)
    check_export(to, out)
    from lethe.steps.evaluate import Interrupted

    name = arguments.get("name")
    if name is None:
        name = _unnamed(arguments)
    folder = Path("data/eval", name)
    try:
        evaluation = call(**{**arguments, "name": name}, folder=folder)
    except KeyboardInterrupt:
        raise Interrupted(folder / "answers") from None
    written: Values = {}
    if to == "eee":
        from lethe.api.exporting import export_run

        (measured,) = evaluation.models
        data = str(arguments["data"])
        written["eee"] = exported(export_run(folder, measured, data, out or Path()))
    gate = None
    if fail_above is not None:
        from lethe.io.artifacts import read_items

        gate = gate_of_answers(evaluation, arguments, folder, fail_above)
        gate = gate.up_to_limit(evaluation.numbers.values.get("truncated"))
        gate = gate.naming(dict.fromkeys([*evaluation.skipped, *read_items("forget", folder)]))
        write_for_ci(summary, junit, name, gate)
    return gated(evaluation, gate, written, None if all else evaluation.brief())


def _unnamed(arguments: Arguments) -> str:
    """The name of an evaluation that was given none: its model's. Raises `BadInput` where another model has it."""
    from lethe.models import hub
    from lethe.steps.evaluate import evaluated_model

    model: Path = arguments["model"]
    if "endpoint" in arguments:
        place = f"{model} at {arguments['endpoint']}"
        family = "other"
        name = Path(str(model).replace("/", "-")).resolve().name
    else:
        named = hub.hub_name(model)
        if named is not None and not model.exists():
            model = named.folder  # the public function fetches it, once all else is checked
        model = model.resolve()
        place = str(model)
        family = model.parent.name
        name = model.name
    name = name.replace("@", "-")
    folder = Path("data/eval", name)
    other = evaluated_model(folder)
    if other not in (None, place):
        remedy = f"Give this one a name of its own: --name, for example {family}-{name}."
        raise BadInput(f"{folder} holds the evaluation of {other}. {remedy}")
    return name


def sample(
    call: Callable[..., evaluating.Samples],
    arguments: Arguments,
    data: Path | None = None,
    out: Path | None = None,
    scorer: str | None = None,
    above: float = EXACT.above,
) -> Outcome:
    """Ask the questions of a file, score the answers, and write them.

    Parameters
    ----------
    data : Ask the questions of this dataset instead: JSON lines with id, question, answer.
    out : Write the answers to this .parquet or .csv file: `prompt_id, sample, text, tokens, finish_reason,
        mean_confidence`, and the scores.
    scorer : Score the answers to the questions of --data: keyword_leak, exact_match, or another text scorer.
    """
    from lethe.data.rows import read_rows
    from lethe.sampling.answer_tree.asking import check_scorer, leak_of, leaks

    if scorer is not None:
        if data is None:
            raise BadValue("scorer", scorer, "given with --data, whose rows say what a leak is")
        check_scorer(scorer, above)
    if (data is None) == ("prompts" not in arguments):
        raise BadInput(
            "lethe sample: give PROMPTS, or the questions of a file with --data, and not both."
        )
    if out is not None:
        fresh("out", out, (".parquet", ".csv"))
    rows: dict[str, Row] = {}
    if data is not None:
        rows = {row["id"]: row for row in read_rows(data)}
        arguments["prompts"] = {name: row["question"] for name, row in rows.items()}
    samples = call(**arguments)
    table = samples.to_frame()
    json: Values = {}
    notes = []
    if scorer is not None:
        scores = []
        judged = []
        for answers in samples.answers:
            of_prompt = leaks(scorer, above, answers.texts, rows[answers.prompt_id])
            scores += list(of_prompt[0])
            judged += list(of_prompt[1])
        table[scorer] = scores
        drawn = table["sample"] >= 0
        table["leak"] = judged
        json["leaks"] = table[drawn].groupby("prompt_id", sort=False)["leak"].sum().to_dict()
        for name, count in json["leaks"].items():
            leak = leak_of(scorer, above)
            notes.append(f"{name}: {count:,.0f} sampled answers leak ({leak}).")
    if out is not None:
        write_rows(out, table)
        json = {"file": str(out), **json}
        notes.append(f"The answers are in {out}.")
    return Outcome(samples, json, notes)
