"""A gate on the leak rate of every question: what it says in JSON and to people, and the files that it writes for a CI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.cli.files import fresh
from lethe.cli.outcome import Outcome, Shown, Values
from lethe.errors import check, plural
from lethe.results.gate import GatedQuestion, GateReason, closed_by
from lethe.statistics.bound import RANDOM, Covers, in_full

if TYPE_CHECKING:
    import numpy as np

    from lethe.io.tries import Try
    from lethe.statistics.bound import Bound

# Why a judge's calibration alone opens no gate.
MISFIT = "the calibration {} of {} does not fit the verdicts, so no bound exists"
JUDGED = (
    "a calibration measures the judge on average, and a judge that is blind on one question leaves that question's bound "
    "false. Label random draws of every question (--labels), whose bounds need no judge"
)


@dataclass(frozen=True)
class Gate:
    """A gate's keys of `--json`, and its questions with their ends at the level of the gate."""

    json: Values
    questions: tuple[GatedQuestion, ...] = ()

    def up_to_limit(self, truncated: object) -> Gate:
        """The gate; an open one says which share of the answers, ``truncated``, was cut before it could leak."""
        if self.json["closed"] or not isinstance(truncated, float) or not truncated:
            return self
        said = (
            f"{self.json['reason']} It counts answers up to their limit of tokens, where {100 * truncated:.3g}% of them "
            "were cut: what they would say next is not counted."
        )
        return replace(self, json={**self.json, "reason": said})

    def naming(self, items: Iterable[str]) -> Gate:
        """The gate; one without a bound lists all of these questions as open, without ends."""
        if self.json["bound"] is None:
            left = [{"id": item, "word": "open", "lower": None, "upper": None} for item in items]
            return replace(self, json={**self.json, "closed_by": left})
        return self


def closed_gate(tau: float, attempt: Try, why: str) -> Gate:
    """A gate that is closed for a reason, because no bound exists."""
    without: Values = {
        "tau": tau,
        "threshold": tau,
        "passed": False,
        "closed": True,
        "bound": None,
        "alpha": attempt.level,
        "prompt_id": None,
        "guarantee": None,
        "tries": attempt.as_json(),
        "reason": f"The gate is closed: {why.rstrip('.')}.",
        "closed_by": [],
    }
    return Gate(without)


def gate_of(
    tau: float,
    attempt: Try,
    bound: Bound,
    name: str | None,
    questions: Sequence[GatedQuestion],
    said: str | None = None,
) -> Gate:
    """Whether a bound at the level of the try certifies that every question leaks at most ``tau``.

    ``questions`` have the ends of each question at this level, and ``name`` is the one of the bound. What is ``said`` of the
    draws is by default what the try says.
    """
    if said is None:
        said = attempt.sentence()
    closed = bound.value > tau
    state = "closed: it is not shown" if closed else "open: it is shown"
    named = f" ({name})" if name else ""
    guarantee = f"{bound.guarantee('the questions')} ({bound.method})"
    covers = Covers.ONE_IN_LANGUAGE if RANDOM in bound.covers else Covers.ONE_PROMPT
    of_one = replace(bound, covers=covers, alpha=attempt.level)
    decided: Values = {
        "tau": tau,
        "threshold": tau,
        "passed": not closed,
        "closed": closed,
        "bound": bound.value,
        "alpha": attempt.level,
        "prompt_id": name,
        "guarantee": of_one.guarantee("the questions"),
        "tries": attempt.as_json(),
        "reason": (
            f"The gate is {state} that every question leaks at most {in_full(tau)}; "
            f"the bound is {bound.significant()}{named}, {guarantee}. {said}"
        ),
        "closed_by": closed_by(questions, tau),
    }
    return Gate(decided, tuple(questions))


def gated(
    result: Shown, gate: Gate | None, written: Values, brief: Sequence[str] | None = None
) -> Outcome:
    """An answer with what was ``written`` elsewhere, and the gate if one was asked."""
    notes = [*written.values()]
    if gate is None:
        return Outcome(result, written, notes, brief=brief)
    notes.append(gate.json["reason"])
    status = int(gate.json["closed"])
    return Outcome(result, {**written, "gate": gate.json}, notes, status, brief=brief)


def without_bound(questions: int) -> str:
    """Why a gate is closed that ``questions`` without a bound would pass."""
    some = plural(questions, "question")
    return (
        f"no bound exists for {some}: too long, without keywords, without an answer that a model ended, or without labels. "
        "Mend these rows or draw their answers again, and give labels where they decide"
    )


def check_gate(
    fail_above: float | None, summary: Path | None = None, junit: Path | None = None
) -> None:
    """Refuse a threshold outside [0, 1), and a file for a CI without one."""
    inside = fail_above is None or 0 <= fail_above < 1
    check(inside, "fail_above", fail_above, "a number of at least 0 and below 1")
    check_files(fail_above is not None, "given with --fail-above", summary, junit)


def check_files(is_gated: bool, legal: str, summary: Path | None, junit: Path | None) -> None:
    """Refuse a summary or a JUnit file without a gate; ``legal`` says with which."""
    for name, file in (("summary", summary), ("junit", junit)):
        check(file is None or is_gated, name, str(file), legal)
    if junit is not None:
        fresh("junit", junit, (".xml",))


def write_for_ci(
    summary: Path | None,
    junit: Path | None,
    about: str,
    gate: Gate | None,
    decisions: Sequence[GateReason] = (),
) -> None:
    """Append the gates to the file of a job's summary, and write them as JUnit, if these are named."""
    from lethe.report import gate_junit, gate_summary

    of_gate = None if gate is None else gate.json
    questions = () if gate is None else gate.questions
    if summary is not None:
        gate_summary.append(summary, about, of_gate, questions, decisions)
    if junit is not None:
        gate_junit.write(junit, about, of_gate, questions, decisions)


def questions_at(
    items: Sequence[str], lowers: np.ndarray, uppers: np.ndarray
) -> list[GatedQuestion]:
    """The questions of a gate from their ends."""
    return list(map(GatedQuestion, items, lowers.tolist(), uppers.tolist()))
