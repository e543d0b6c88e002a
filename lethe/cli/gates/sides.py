"""The gates of `lethe compare`: whether B is worse, proved not worse, and leaks at most so much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lethe.cli.gates.gate import Gate, closed_gate, gate_of
from lethe.cli.outcome import Arguments, Values
from lethe.errors import plural
from lethe.io.files import Json
from lethe.results.gate import GatedQuestion, GateReason
from lethe.statistics.bound import in_full

if TYPE_CHECKING:
    from lethe.api import runs
    from lethe.io.tries import Try


SIDES = "these questions (keep comparisons of other models in another folder)"


@dataclass(frozen=True)
class GatesOfSides:
    """The gate on the leak rate of every question of B, if it was asked for, and what became of the other gates.

    ``json`` and ``notes`` say it to machines and to people.
    """

    gate: Gate | None
    decisions: Sequence[GateReason]
    json: Values
    notes: Sequence[str]

    @property
    def is_closed(self) -> bool:
        """Whether any gate is closed."""
        of_b = self.gate is not None and self.gate.json["closed"]
        return of_b or any(decision.closed for decision in self.decisions)


def gates_of_sides(
    call: Callable[..., runs.ShownComparison],
    sides: Sequence[Json],
    arguments: Arguments,
    comparison: runs.ShownComparison,
    asked: Mapping[str, Json],
) -> GatesOfSides:
    """The gates at the level of the try that these draws are."""
    attempt = _tried(comparison)
    at_level = call(*sides, **{**arguments, "alpha": attempt.level})
    decisions = []
    if "--fail-on" in asked:
        said = _whether_worse(at_level, attempt)
        decisions.append(GateReason("--fail-on worse", at_level.worse, said))
    if "--require" in asked:
        problem = _not_proved(at_level, comparison.record["not_compared"])
        decisions.append(GateReason("--require not-worse", bool(problem), problem))
    try_of_sides = attempt.sentence(SIDES)
    json: Values = {"tries": attempt.as_json()}
    notes = [try_of_sides]
    notes += [decision.reason for decision in decisions if decision.reason]
    worst = at_level.of_all("score_worst")
    if "--fail-above" not in asked or worst is None or worst.upper_bound is None:
        return GatesOfSides(None, decisions, json, notes)

    questions = [GatedQuestion(**question) for question in worst.facts["questions"]]
    largest = max(questions, key=lambda question: question.upper)
    tau = asked["--fail-above"]
    gate = gate_of(tau, attempt, worst.upper_bound, largest.id, questions, try_of_sides)
    json["gate"] = gate.json
    notes.append(f"B: {gate.json['reason']}")
    return GatesOfSides(gate, decisions, json, notes)


def closed_gates(comparison: runs.ShownComparison, asked: Mapping[str, Json]) -> GatesOfSides:
    """Every gate that was asked for, closed because nothing may be claimed of a side."""
    from lethe.io.tries import Try

    record = comparison.record
    refused = " ".join([*record["refused"], *record["unpointed"]])
    said = f"The gate is closed: {refused}"
    questions = dict.fromkeys(str(row.item) for row in comparison.per_question)
    gate = None
    json: Values = {}
    decisions = []
    for name, value in asked.items():
        if name == "--fail-above":
            gate = closed_gate(value, Try(1, record["alpha"]), refused).naming(questions)
            json["gate"] = gate.json
        else:
            decisions.append(GateReason(f"{name} {value}", closed=True, reason=said))
    return GatesOfSides(gate, decisions, json, [said])


def _tried(comparison: runs.ShownComparison) -> Try:
    """The try of the gates on these draws: the same for every gate, difference and level."""
    from lethe.io import tries

    record = comparison.record
    questions = []
    tests = []  # what is declared of the draws may ask for another test of them, which is another try
    for row in comparison.per_question:
        questions.append(str(row.item))
        tests.append([row.method, row.assumes])
    tested = ["compare", record["metric"], sorted(questions)]
    return tries.begin(tested, [comparison.draws, tests], record["alpha"])


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
