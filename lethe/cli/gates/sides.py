"""The gates of `lethe compare`: whether B is worse, proved not worse, and leaks at most so much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.cli.files import fresh
from lethe.cli.gates.gate import Gate, gate_of
from lethe.cli.outcome import Arguments, Outcome
from lethe.errors import check, plural
from lethe.io.files import Json
from lethe.results.gate import GatedQuestion, GateReason
from lethe.statistics.bound import in_full

if TYPE_CHECKING:
    from lethe.api import runs
    from lethe.io.tries import Try


SIDES = "these questions (keep comparisons of other models in another folder)"


def check_files(asked: Mapping[str, Json], summary: Path | None, junit: Path | None) -> None:
    """Refuse a file for a CI without a gate."""
    for option, file in (("summary", summary), ("junit", junit)):
        legal = "given with --fail-on, --require or --fail-above"
        check(file is None or asked, option, str(file), legal)
    if junit is not None:
        fresh("junit", junit, (".xml",))


def write_sides(
    about: str,
    gate: Gate | None,
    decisions: Sequence[GateReason],
    summary: Path | None,
    junit: Path | None,
) -> None:
    """Write the gates of a comparison for a CI, where files are named."""
    from lethe.report import gate_junit, gate_summary

    of_gate = None if gate is None else gate.json
    questions = () if gate is None else gate.questions
    if summary is not None:
        gate_summary.append(summary, about, of_gate, questions, decisions)
    if junit is not None:
        gate_junit.write(junit, about, of_gate, questions, decisions)


def tried(
    call: Callable[..., runs.ShownComparison],
    sides: Sequence[Json],
    arguments: Arguments,
    comparison: runs.ShownComparison,
) -> tuple[Try, runs.ShownComparison]:
    """The try of the gates on these draws, and the comparison at its level."""
    from lethe.io import tries

    # What a gate asks adds rows of its own: the draws are those of one question to all gates, so that they are one try.
    asking = ("alpha", "by", "on")
    alike = {name: value for name, value in arguments.items() if name not in asking}
    drawn = call(*sides, **{**alike, "worst": True})

    questions: list[str] = []
    draws: list[list[object]] = []
    for row in drawn.rows():
        draws.append([row.item, row.quantity, row.estimate, row.facts.get("p_value")])
        if row.scope == "question":
            questions.append(str(row.item))
    worst = drawn.of_all("score_worst")
    if worst:
        draws.append([worst.upper])
    record = comparison.record
    tested = ["compare", record["metric"], sorted(questions)]
    attempt = tries.begin(tested, draws, record["alpha"])
    return attempt, call(*sides, **{**arguments, "alpha": attempt.level})


def gates_of_sides(
    comparison: runs.ShownComparison,
    at_level: runs.ShownComparison,
    attempt: Try,
    asked: Mapping[str, Json],
) -> tuple[Gate | None, list[GateReason]]:
    """The gate on the leak rate of every question of B, if it was asked for, and what became of the other gates."""
    decisions = []
    if "--fail-on" in asked:
        said = _whether_worse(at_level, attempt)
        decisions.append(GateReason("--fail-on worse", at_level.worse, said))
    if "--require" in asked:
        problem = _not_proved(at_level, comparison.record["not_compared"])
        decisions.append(GateReason("--require not-worse", bool(problem), problem))
    worst = at_level.of_all("score_worst")
    if "--fail-above" not in asked or worst is None:
        return None, decisions
    questions = [GatedQuestion(**question) for question in worst.facts["questions"]]
    largest = max(questions, key=lambda question: question.upper)
    gate = gate_of(
        asked["--fail-above"],
        attempt,
        worst.upper_bound,
        largest.id,
        about=SIDES,
        questions=questions,
    )
    return gate, decisions


def _whether_worse(comparison: runs.ShownComparison, attempt: Try) -> str:
    state = "open: B is not shown to be worse at the level of this try"
    if comparison.worse:
        worse = [str(row.item) for row in comparison.with_outcome("worse")]
        where = "on average"
        if worse:
            more = ", …" if len(worse) > 1 else ""
            where = f"on {plural(len(worse), 'question')} ({worse[0]}{more})"
        state = f"closed: B is worse {where}"
    wrong = f"it closes without a true difference with probability at most {attempt.level:g}"
    return f"The gate is {state}; {wrong}."


def _not_proved(
    comparison: runs.ShownComparison, not_compared: Sequence[Mapping[str, Json]]
) -> str:
    """Why the gate --require not-worse is closed; empty where it is open."""
    row = comparison.of_all("not_worse")
    if row is None:
        return ""
    absent = [entry for entry in not_compared if entry["id"] is not None]
    if absent:
        some = plural(len(absent), "question")
        return f"--require not-worse: nothing is proved of {some} that could not be compared."
    if not row.facts["holds"]:
        by = f"worse by at most {in_full(row.facts['by'])}"
        return f"The gate is closed: at the level of this try B is not proved {by}."
    return ""


def refused_comparison(
    outcome: Outcome,
    record: Mapping[str, Json],
    questions: Sequence[str],
    asked: Mapping[str, Json],
    summary: Path | None,
    junit: Path | None,
) -> Outcome:
    """The answer where nothing may be claimed of a side: every gate that was asked for is closed."""
    if not asked:
        return outcome
    because = " ".join([*record["refused"], *record["unpointed"]])
    said = f"The gate is closed: {because}"
    json = dict(outcome.json)
    gate = None
    decisions = []
    for name, value in asked.items():
        if name == "--fail-above":
            from lethe.io.tries import Try

            gate = gate_of(value, Try(1, record["alpha"]), None, why=because).naming(questions)
            json["gate"] = gate.json
        else:
            decisions.append(GateReason(f"{name} {value}", closed=True, reason=said))
    write_sides(record["b"], gate, decisions, summary, junit)
    return replace(outcome, json=json, notes=[*outcome.notes, said], status=1)
