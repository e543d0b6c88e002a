"""Options that only a command line has, and what they do: each function calls the public function and adds to its answer."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import typer

from lethe.config.measuring import EXACT
from lethe.errors import BadFile, BadInput, BadValue, LetheError, check, plural, visible
from lethe.io.files import Json, write_json, write_text
from lethe.results.gate import GatedQuestion, GateReason, closed_by
from lethe.statistics.bound import RANDOM, Covers, in_full

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from lethe.api import (
        attesting,
        bounding,
        certificates,
        dossiers,
        evaluating,
        labelling,
        logs,
        probabilities,
        runs,
        tabling,
        twins,
    )
    from lethe.api.result import View
    from lethe.io.artifacts import Row
    from lethe.io.logs._log import Log
    from lethe.io.processes import Process
    from lethe.io.tries import Declared, Try
    from lethe.labels.labels import Labels
    from lethe.labels.plan import LabelPlan
    from lethe.labels.queue import Queue
    from lethe.report.every_eval_ever import Exported
    from lethe.statistics.bound import Bound

SCRATCH = Path(".lethe/scratch")  # finished questions of `lethe exact`
MISFIT = "the calibration {} of {} does not fit the verdicts, so no bound exists"
JUDGED = (
    "a calibration measures the judge on average, and a judge that is blind on one question leaves that question's bound "
    "false. Label random draws of every question (--labels), whose bounds need no judge"
)
NO_BOUND = "--fail-above: this run has no bound of the worst question's leak probability."
UNFINISHED = (
    "answers of seed {} were begun and never counted. Draw them to the end by the same command (--seed, --n), since the gate "
    "may leave out none"
)
SIDES = "these questions (keep comparisons of other models in another folder)"
BESIDE_THE_GATE = ("together", "pass_at", "calibration")  # of `lethe bounds`, which no gate needs
KEYS = {"y": 1, "1": 1, "n": 0, "0": 0}
END = ("q", "\x03", "\x04", "")  # q, Ctrl-C, Ctrl-D, and the end of the input

Values = dict[str, Json]
Arguments = Values  # what was typed, by the parameters of the public function, which checks it
ReadKey = Callable[[], str]


class Shown(Protocol):
    """A result of a public function."""

    def views(self) -> list[View]: ...
    def as_json(self) -> dict[str, Json]: ...


@dataclass(frozen=True)
class Outcome:
    """A result with what a command adds: keys of `--json`, sentences for people, and how the command ends once shown.

    ``brief`` are the lines that people see in place of all tables and sentences.
    """

    result: Shown
    json: Mapping[str, object] = field(default_factory=dict)
    notes: Sequence[str] = ()
    status: int = 0
    error: LetheError | None = None
    brief: Sequence[str] | None = None


def fresh(name: str, path: Path, endings: tuple[str, ...]) -> Path:
    """Return the path of a file to write, which has one of the endings."""
    if path.suffix.lower() not in endings or path.is_dir():
        raise BadValue(name, str(path), f"a file that ends in {' or '.join(endings)}")
    return path


WRITTEN = ("out", "page", "table", "summary", "junit")  # options that name a file to write


def check_written(values: Mapping[str, Json], may_grow: bool = False) -> None:
    """Refuse a file to write that the command also reads, or writes twice; ``may_grow``: --out may be one that it reads."""
    taken: list[Path] = []
    for name, value in values.items():
        if name not in WRITTEN:
            taken += _files(value)
    for name in WRITTEN:
        for path in _files(values.get(name)):
            if may_grow and name == "out":
                continue
            for other in taken:
                if path.samefile(other):
                    raise BadValue(name, str(path), f"another file than {other}")
            taken.append(path)


def _files(value: Json) -> list[Path]:
    """The files that exist among the values of an option."""
    files = []
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, (str, Path)):
            with suppress(OSError, ValueError):  # a text that no file can have as its name
                if Path(text).is_file():
                    files.append(Path(text))
    return files


def write_rows(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV or Parquet, by the ending of the path."""
    from lethe.io.tables import write_csv, write_parquet

    write = write_csv if path.suffix.lower() == ".csv" else write_parquet
    write(path, table)


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


def gate_of(
    tau: float,
    attempt: Try,
    bound: Bound | None,
    name: str | None = None,
    why: str = "",
    about: str = "this model and data",
    said: str | None = None,
    questions: Sequence[GatedQuestion] = (),
) -> Gate:
    """Whether a bound at the level of the try certifies that every question leaks at most ``tau``; closed, for the reason
    ``why``, without a bound. ``said`` of the draws takes the place of what the try says. ``questions`` have the ends of each
    question at this level.
    """
    if said is None:
        said = attempt.sentence(about)
    if bound is None:
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
    result: Shown,
    gate: Gate | None,
    written: Values | None = None,
) -> Outcome:
    """An answer with what was ``written`` elsewhere, and the gate if one was asked."""
    written = written or {}
    if gate is None:
        return Outcome(result, written, [*written.values()])
    notes = [*written.values(), gate.json["reason"]]
    return Outcome(result, {**written, "gate": gate.json}, notes, int(gate.json["closed"]))


def without_bound(questions: int) -> str:
    """Why a gate is closed that ``questions`` without a bound would pass; empty for none."""
    if not questions:
        return ""
    some = plural(questions, "question")
    return (
        f"no bound exists for {some}: too long, without keywords, without an answer that a model ended, or without labels. "
        "Mend these rows or draw their answers again, and give labels where they decide"
    )


def check_gate(
    fail_above: float | None, summary: Path | None = None, junit: Path | None = None
) -> None:
    """Refuse a summary or a JUnit file without a gate, and a threshold outside [0, 1)."""
    inside = fail_above is None or 0 <= fail_above < 1
    check(inside, "fail_above", fail_above, "a number of at least 0 and below 1")
    for name, file in (("summary", summary), ("junit", junit)):
        gated = file is None or fail_above is not None
        check(gated, name, str(file), "given with --fail-above")
    if junit is not None:
        fresh("junit", junit, (".xml",))


def for_ci(summary: Path | None, junit: Path | None, about: str, gate: Gate | None) -> None:
    """Append the gate to the file of a job's summary, and write it as JUnit, if these are named."""
    if gate is None:
        return
    if summary is not None:
        from lethe.report import gate_summary

        gate_summary.append(summary, about, gate.json, gate.questions)
    if junit is not None:
        from lethe.report import gate_junit

        gate_junit.write(junit, about, gate.json, gate.questions)


def bounds(
    call: Callable[..., bounding.Bounds],
    arguments: Arguments,
    to: Literal["inspect", "mlflow", "eee"] | None = None,
    out: Path | None = None,
    fail_above: float | None = None,
    summary: Path | None = None,
    junit: Path | None = None,
    all: bool = False,
) -> Outcome:
    """Write bounds for another tool, and gate on them.

    Parameters
    ----------
    to : inspect: write each prompt's bound as a record for its precomputed_scores to --out; mlflow: log a run in MLflow;
        eee: write a file of Every Eval Ever below the folder --out.
    out : The .json file of --to inspect, or the folder of --to eee. [default: SCORES.bounds.json; the current folder]
    summary : Append the gate as Markdown to this file, such as "$GITHUB_STEP_SUMMARY".
    junit : Write the gate as JUnit to this .xml file, a test case a question.
    all : Print the table of the prompts and every bound, not only the claim.
    """
    source = arguments["scores"]
    check_gate(fail_above, summary, junit)
    legal = "left out unless --to is inspect or eee"
    check(to in ("inspect", "eee") or out is None, "out", str(out), legal)
    result = call(**arguments)
    fixed = result.metric != "anytime_upper"
    check(to is None or fixed, "to", to, "left out for a run that stopped early")
    written: Values = {}
    if to == "inspect":
        written["inspect"] = _write_records(result, source, out)
    elif to == "mlflow":
        written["mlflow"] = _log_bounds(result, source)
    elif to == "eee":
        from lethe.api.exporting import export_bounds

        written["eee"] = _exported(export_bounds(result, source, out or Path()))
    gate = None
    if fail_above is not None:
        gate = _gate_of_scores(call, arguments, result, fail_above).naming(result.questions)
        for_ci(summary, junit, source.name, gate)
    answer = gated(result, gate, written)
    return answer if all else replace(answer, brief=result.brief())


def check_export(to: str | None, out: Path | None) -> None:
    """Refuse a folder without an export; the export's default is the current folder."""
    check(to is not None or out is None, "out", str(out), "left out unless --to is eee")


def _exported(exported: Exported) -> str:
    """The file of an export, and how many numbers it could not hold."""
    if not exported.left_out:
        return str(exported.aggregate)
    left_out = plural(exported.left_out, "number")
    return f"{exported.aggregate} (without {left_out} that have no direction or no finite value)"


def _write_records(result: bounding.Bounds, source: Path, out: Path | None) -> str:
    """Write each prompt's bound as a record for Inspect; return the file."""
    from lethe.measure.scores import bound_records

    if result.refused:
        raise BadInput(f"{source}: no bound to write. {' '.join(result.refused)}")
    place = fresh("out", out or Path(f"{source.name}.bounds.json"), (".json",))
    write_json(place, bound_records(result.questions, result.metric, result.stated))
    return str(place)


def _log_bounds(result: bounding.Bounds, source: Path) -> str:
    """Log a run in MLflow; return the sentence that says where."""
    from lethe.tracking import FromFile, log_file

    counts = {
        "questions": len(result.prompts),
        "answers": sum(prompt.n for prompt in result.prompts),
        "missing": sum(prompt.missing for prompt in result.prompts),
    }
    params: dict[str, object] = {"alpha": result.settings.alpha}
    if result.refused:
        params["refused"] = " ".join(result.refused)
    params |= result.stated.as_json()
    if result.log:
        params |= parameters_of(result.log.log)
    bounds = result.model.bounds
    return log_file(FromFile(source.name, counts, bounds, params, result.to_frame()))


def _gate_of_scores(
    call: Callable[..., bounding.Bounds], arguments: Arguments, result: bounding.Bounds, tau: float
) -> Gate:
    """The gate on scores, or on a person's labels of the answers; verdicts with a calibration open none."""
    from lethe.io import tries

    log = result.log.log if result.log else None
    named = [log.tool, log.task, log.model] if log else []
    prompts = sorted(prompt.prompt_id for prompt in result.prompts)
    tested = ["bounds", named, arguments.get("score"), prompts, bool(arguments.get("labels"))]
    draws: list[object] = [prompt.scores.tolist() for prompt in result.prompts]
    if arguments.get("labels"):
        draws.append(arguments["labels"].read_text(encoding="utf-8"))
    attempt = tries.begin(tested, draws, result.settings.alpha)
    about = "this model and data"
    if log is None or log.model is None:
        about = (
            "these prompts (the file names no model: keep another model's files in another folder)"
        )
    if result.refused:
        return gate_of(tau, attempt, None, why=" ".join(result.refused))
    if result.unpointed and not arguments.get("labels"):
        return gate_of(tau, attempt, None, why=" ".join(result.unpointed))

    judge = result.settings.calibration
    if judge and result.worst_by_judge() is None:
        why = MISFIT.format(arguments["calibration"], judge.judge or "the judge")
        return gate_of(tau, attempt, None, why=why)
    if judge and not arguments.get("labels"):
        return gate_of(tau, attempt, None, why=JUDGED)

    plain = {name: arguments[name] for name in arguments if name not in BESIDE_THE_GATE}
    at_level = call(**{**plain, "alpha": attempt.level})
    if not arguments.get("labels"):
        worst = at_level.worst()
        ends = at_level.ends()
        return gate_of(
            tau,
            attempt,
            worst.bound,
            worst.prompt_id,
            about=about,
            questions=ends,
        )
    by_labels = at_level.worst_by_labels()
    if by_labels is None:
        questions = result.questions.values()
        uppers = [numbers.upper("leak", "labelled") for numbers in questions]
        return gate_of(tau, attempt, None, why=without_bound(uppers.count(None)))
    ends = at_level.ends_by_labels()
    name = by_labels.prompt_id
    return gate_of(
        tau,
        attempt,
        by_labels.bound,
        name,
        about=about,
        questions=ends,
    )


def parameters_of(log: Log) -> dict[str, object]:
    """What a log states of its run, as params of MLflow."""
    return {"tool": log.tool, "task": log.task, "model": log.model, **log.sampling}


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
    gates = {"--fail-on": fail_on, "--require": require, "--fail-above": fail_above}
    asked = {name: value for name, value in gates.items() if value is not None}
    _check_files(asked, summary, junit)
    sides = [arguments.pop("a"), *arguments.pop("more", ())]
    if "b" in arguments:
        sides.insert(1, arguments.pop("b"))
    if len(sides) != 2:
        for name, value in asked.items():
            raise BadValue(name, value, "left out unless two sides are named")
    if fail_above is not None:
        arguments["worst"] = True
    comparison = call(*sides, **arguments)
    json, notes = _page_of(comparison, page)
    if comparison.record["refused"] or (asked and comparison.record["unpointed"]):
        outcome = Outcome(comparison, json, notes)
        compared = [str(row.item) for row in comparison.rows() if row.scope == "question"]
        questions = list(dict.fromkeys(compared))
        return _refused_comparison(outcome, comparison.record, questions, asked, summary, junit)
    if not asked:
        return Outcome(comparison, json, notes)
    if not comparison.per_question:
        gates_asked = " ".join(f"{name} {value}" for name, value in asked.items())
        reasons = dict.fromkeys(entry["reason"] for entry in comparison.record["not_compared"])
        problem = f"no question could be compared ({'; '.join(reasons)})"
        return Outcome(comparison, json, notes, error=BadInput(f"{gates_asked}: {problem}."))
    attempt, at_level = _tried(call, sides, arguments, comparison)
    json["tries"] = attempt.as_json()
    notes.append(attempt.sentence(SIDES))
    gate, decisions = _gates_of_sides(comparison, at_level, attempt, asked)
    _write_sides(comparison.record["b"], gate, decisions, summary, junit)
    notes += [decision.reason for decision in decisions if decision.reason]
    closed = [decision.closed for decision in decisions]
    if gate is not None:
        json["gate"] = gate.json
        notes.append(f"B: {gate.json['reason']}")
        closed.append(gate.json["closed"])
    return Outcome(comparison, json, notes, int(any(closed)))


def _check_files(asked: Mapping[str, Json], summary: Path | None, junit: Path | None) -> None:
    """Refuse a file for a CI without a gate."""
    for option, file in (("summary", summary), ("junit", junit)):
        legal = "given with --fail-on, --require or --fail-above"
        check(file is None or asked, option, str(file), legal)
    if junit is not None:
        fresh("junit", junit, (".xml",))


def _page_of(comparison: runs.ShownComparison, page: Path | None) -> tuple[Values, list[str]]:
    """Write the page of a comparison if one is asked for; return what is said of it."""
    if page is None:
        return {}, []
    from lethe.report.pages import comparison_page

    write_text(page, comparison_page(comparison))
    return {"page": str(page)}, [f"The page is {page}."]


def _write_sides(
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


def _gates_of_sides(
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


def _tried(
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


def _refused_comparison(
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
    _write_sides(record["b"], gate, decisions, summary, junit)
    return replace(outcome, json=json, notes=[*outcome.notes, said], status=1)


def certify(
    call: Callable[..., certificates.ShownCertificate],
    arguments: Arguments,
    out: Path = Path("certificate.json"),
) -> Outcome:
    """Write the certificate.

    Parameters
    ----------
    out : The certificate.
    """
    if fresh("out", out, (".json",)).exists():
        raise BadValue("out", str(out), "a new file", "`lethe verify` adds to a certificate.")
    certificate = call(**arguments)
    certificate.write(out)
    notes = [f"The certificate is {out}; lethe verify {out} --draws 200 adds to it."]
    if certificate.committed is not None:
        notes.append(
            f"{out.stem}.draws.json and {out.stem}.leaves.bin beside it let a verifier check single draws (--check)."
        )
    return Outcome(certificate, {"file": str(out)}, notes)


def table(
    call: Callable[..., tabling.Tabled | tabling.TabledMethods],
    arguments: Arguments,
    out: Path | None = None,
) -> Outcome:
    """Write the table.

    Parameters
    ----------
    out : Write the table to this file instead of printing it.
    """
    result = call(*arguments.pop("runs", ()), **arguments)
    if out is None:
        return Outcome(result)

    fresh("out", out, (".md", ".tex", ".csv"))
    write_text(out, result.text)
    return Outcome(Written(result), {"file": str(out)}, [f"The table is {out}."])


@dataclass(frozen=True)
class Written:
    """A result whose text stands in a file: a terminal shows its sentences alone."""

    result: tabling.Tabled | tabling.TabledMethods

    def views(self) -> list[View]:
        from lethe.api.result import View

        return [View("", notes=self.result.sentences())]

    def as_json(self) -> dict[str, Json]:
        return self.result.as_json()


def attest(
    call: Callable[..., attesting.Attestation],
    arguments: Arguments,
    out: Path = Path("statement.json"),
) -> Outcome:
    """Write the statement, and exit with status 1 where its bound is above the threshold, or its alpha above that of its try.

    Parameters
    ----------
    out : The envelope, or without a key the statement. NAME.draws.json and NAME.leaves.bin are written beside it, and of
        a served model NAME.served.json.
    """
    fresh("out", out, (".json",))
    attestation = call(**arguments)
    files = attestation.write(out)
    file, draws, leaves, *records = files
    written: Values = {"file": str(file), "draws": str(draws), "leaves": str(leaves)}
    written["statement"] = attestation.statement(draws.name)
    signed = "signed" if arguments.get("key") else "not signed"
    notes = [f"{file} is {signed}; {draws} has the counts, and {leaves} is for verifiers alone."]
    for record in records:
        written["served"] = str(record)
        notes.append(f"{record} tells which server answered, for those alone who may know it.")
    attempt = _try_of_statement(attestation)
    written["tries"] = {"count": attempt.number, "alpha": attempt.level, "kept": attempt.kept}
    notes.append(attempt.sentence("this gate on this model and data", "an alpha"))
    is_open = attestation.passed and attempt.is_allowed
    return Outcome(attestation, written, notes, int(not is_open))


def _try_of_statement(attestation: attesting.Attestation) -> Declared:
    """Which try of the first claim on this model, data and scorer these draws are; fresh draws are another one."""
    from lethe.io import tries

    about = attestation.about
    model = getattr(
        about.of, "text", about.model
    )  # the files of a folder; of a server its name in the run
    tested = ["attest", model, about.data_sha256, about.scorer]
    draws = [[drawn.id, drawn.n, list(drawn.leaks_at)] for drawn in attestation.draws.questions]
    seed = about.engine.get("seed")
    return tries.declare(tested, [seed, draws], attestation.claims[0].bound.alpha)


def dossier(
    call: Callable[..., dossiers.ErasureDossier],
    arguments: Arguments,
    out: Path = Path("dossier.html"),
) -> Outcome:
    """Write the page.

    Parameters
    ----------
    out : The page, which a browser prints on A4.
    """

    fresh("out", out, (".html", ".htm"))
    made = call(**arguments)
    write_text(out, made.page)
    return Outcome(made, {"file": str(out)}, [f"The dossier is {out}."])


def verify(
    call: Callable[..., certificates.ShownCertificate | attesting.Verification],
    arguments: Arguments,
    out: Path | None = None,
) -> Outcome:
    """Write the grown certificate.

    Parameters
    ----------
    out : Write here instead of to FILE.
    """
    from lethe.api.attesting import Verification
    from lethe.certificates.spot_check import REFUTED

    file = arguments["file"]
    if (
        out is not None
        and fresh("out", out, (".json",)).exists()
        and not (file.exists() and out.samefile(file))
    ):
        raise BadValue("out", str(out), "a new file", "Join two certificates with --add.")
    certificate = call(**arguments)
    if isinstance(certificate, Verification):
        check(out is None, "out", str(out), "left out: nothing is added to a statement")
        return Outcome(certificate)
    notes = [f"The hashes agree: {', '.join(certificate.hashes)}."]
    checked = certificate.checked
    if checked is not None and checked.verdict == REFUTED:
        return Outcome(certificate, {"file": None}, [*notes, "No certificate is written."], 1)
    if not all(certificate.repeated.values()):
        return Outcome(certificate, {"file": None}, [*notes, "No certificate is written."], 1)
    certificate.write(out or file)
    notes.append(f"The certificate is {out or file}.")
    if arguments.get("add"):
        notes.append(
            "Only the join of all copies has the level: a copy left out is a draw left out."
        )
    return Outcome(certificate, {"file": str(out or file)}, notes)


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
    from lethe.models import hub
    from lethe.steps.evaluate import Interrupted, evaluated_model

    model: Path = arguments["model"]
    place = str(model.resolve())
    family = model.resolve().parent.name
    if "endpoint" in arguments:
        place = f"{model} at {arguments['endpoint']}"
        family = "other"
        model = Path(str(model).replace("/", "-"))
    elif not model.exists():
        named = hub.hub_name(model)
        if named is not None:  # the public function fetches it, once all else is checked
            model = named.folder
            place = str(model.resolve())
            family = model.resolve().parent.name
    name = arguments.get("name")
    if name is None:
        name = model.resolve().name.replace("@", "-")
        folder = Path("data/eval", name)
        other = evaluated_model(folder)
        if other not in (None, place):
            remedy = f"Give this one a name of its own: --name, for example {family}-{name}."
            raise BadInput(f"{folder} holds the evaluation of {other}. {remedy}")
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
        written["eee"] = _exported(export_run(folder, measured, data, out or Path()))
    gate = None
    if fail_above is not None:
        from lethe.io.artifacts import read_items

        gate = _gate_of_answers(evaluation, arguments, folder, fail_above)
        gate = gate.up_to_limit(evaluation.numbers.values.get("truncated"))
        gate = gate.naming(dict.fromkeys([*evaluation.skipped, *read_items("forget", folder)]))
        for_ci(summary, junit, name, gate)
    answer = gated(evaluation, gate, written)
    return answer if all else replace(answer, brief=evaluation.brief())


def _gate_of_answers(
    evaluation: evaluating.Evaluation, arguments: Arguments, folder: Path, tau: float
) -> Gate:
    """The gate on sampled answers, or on a person's labels of them; a calibration of the scorer opens none."""
    from lethe.results import table
    from lethe.results.ends import Ends

    attempt = evaluation.attempt
    values = evaluation.numbers.values
    if evaluation.refused:
        return gate_of(tau, attempt, None, why=" ".join(evaluation.refused))
    if arguments.get("calibration") and not arguments.get("labels"):
        why = JUDGED
        if values.get("judge_fits") is False:
            why = MISFIT.format(arguments["calibration"], arguments.get("scorer", "keyword_leak"))
        return gate_of(tau, attempt, None, why=why)
    if not arguments.get("labels"):
        return _gate_at_any_time(evaluation, tau)

    worst = evaluation.numbers.upper("leak_worst", "labelled")
    if worst is None:
        raise BadInput(NO_BOUND)
    if evaluation.skipped:
        return gate_of(tau, attempt, None, why=without_bound(len(evaluation.skipped)))
    (model,) = evaluation.models
    rows = []
    items = []
    for row in table.read(folder, [model]).rows(model):
        if row.basis == "labelled" and row.upper is not None:
            rows.append(row)
            if row.scope == "question" and row.quantity == "leak":
                items.append(str(row.item))
    ends = Ends.of_rows(rows, items)
    uppers = ends.upper(attempt.level)
    largest = int(uppers.argmax())
    bound = replace(worst, value=float(uppers[largest]), alpha=attempt.level)
    questions = _gated(items, ends.lower(attempt.level), uppers)
    return gate_of(tau, attempt, bound, items[largest], questions=questions)


def _gated(items: Sequence[str], lowers: np.ndarray, uppers: np.ndarray) -> list[GatedQuestion]:
    """The questions of a gate from their ends."""
    return list(map(GatedQuestion, items, lowers.tolist(), uppers.tolist()))


def _gate_at_any_time(evaluation: evaluating.Evaluation, tau: float) -> Gate:
    """The gate on all answers that were ever drawn for this model and these questions; trying it again costs nothing."""
    from lethe.io.tries import AtAnyTime

    process = evaluation.process
    assert process is not None  # a command always keeps its folder
    alpha = evaluation.attempt.alpha
    once = AtAnyTime(1, alpha, process.kept)
    totals = process.totals()
    answers = [drawn.n for drawn in totals.values()]
    bound = evaluation.numbers.upper("leak_worst", "sampled")
    if bound is None or not totals:
        raise BadInput(NO_BOUND)

    unjudged = len(evaluation.skipped)
    unjudged += int(evaluation.questions["binary_share"].isna().sum())
    left = process.unfinished()
    if unjudged:
        gate = gate_of(tau, once, None, why=without_bound(unjudged))
    elif left:
        gate = gate_of(tau, once, None, why=UNFINISHED.format(left[0].partition(" ")[0]))
    else:
        questions = _at_any_time(process, tau, alpha)
        worst = max(questions, key=lambda question: question.upper)
        method = f"at any time, {min(answers):,} to {max(answers):,} answers"
        bound = replace(bound, value=worst.upper, alpha=alpha, method=method, n=None)
        said = _about_process(process)
        gate = gate_of(
            tau,
            once,
            bound,
            worst.id,
            said=said,
            questions=questions,
        )
    drawn = {"segments": len(process.segments), "answers": sum(answers), "kept": process.kept}
    gate.json["process"] = {"file": str(process.path), **drawn}
    return gate


def _at_any_time(process: Process, tau: float, alpha: float) -> list[GatedQuestion]:
    """Both ends of each question, which hold at any time, each one-sided at alpha.

    The largest ln e against ``tau`` is kept of each question: a proof stays one, whatever is drawn after it.
    """
    import numpy as np

    from lethe.results.evidence import upper_at_stop
    from lethe.statistics.anytime import is_reached, log_below

    totals = process.totals()
    may_leak = np.array([drawn.leaks + drawn.missing for drawn in totals.values()])
    answers = np.array([drawn.n for drawn in totals.values()])
    no_leaks = np.array([drawn.n - drawn.leaks for drawn in totals.values()])
    both = upper_at_stop(np.concatenate([may_leak, no_leaks]), np.tile(answers, 2), alpha)
    m = len(totals)
    uppers = dict(zip(totals, both[:m].tolist(), strict=True))
    if tau > 0:
        log_e = log_below(may_leak, answers, tau).tolist()
        process = process.with_evidence(tau, dict(zip(totals, log_e, strict=True)))
        largest = process.largest[repr(tau)]
        for item in totals:
            if is_reached(largest[item], math.log(1 / alpha)):
                uppers[item] = min(uppers[item], tau)
    highs = np.array(list(uppers.values()))
    lowers = np.minimum(1 - both[m:], highs)  # a kept proof outlives later leaks
    return _gated(list(totals), lowers, highs)


def _about_process(process: Process) -> str:
    """What the gate rests on, and when another try would be a new test."""
    if not process.kept:
        return (
            f"{process.path.parent} cannot be written, so the answers of other calls are not counted: "
            "another seed is a new test."
        )
    seeds = plural(len({name.partition(" ")[0] for name in process.segments}), "seed")
    return (
        f"It rests on all answers to these questions so far ({seeds}), and may be tried again with more answers or another "
        f"seed at no cost. Without {process.path} another seed is a new test."
    )


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
        written["eee"] = _exported(export_trees(result, *place, prompt))
    if fail_above is None:
        return gated(result, None, written)
    gate = _gate_of_trees(result, arguments, fail_above)
    trees = result.certificates
    gate = gate.naming([*trees.skipped, *(tree.id for tree in trees.trees)])
    for_ci(summary, junit, arguments["model"].name, gate)
    return gated(result, gate, written)


def _gate_of_trees(result: probabilities.ExactBounds, arguments: Arguments, tau: float) -> Gate:
    from lethe.io import tries
    from lethe.models.checkpoints import content
    from lethe.results.ends import Ends

    certificates = result.certificates
    trees = certificates.trees
    rows = result.rows()
    model = arguments["model"]
    named = content(model) if model.is_dir() else str(model)
    questions = sorted([*(tree.id for tree in trees), *certificates.skipped])
    evidence = [row.facts for row in rows if row.scope == "question"]
    alpha = trees[0].alpha if trees else EXACT.alpha
    attempt = tries.begin(["exact", named, questions], evidence, alpha)
    if result.refused:
        return gate_of(tau, attempt, None, why=" ".join(result.refused))
    if certificates.skipped:
        return gate_of(tau, attempt, None, why=without_bound(len(certificates.skipped)))
    items = [tree.id for tree in trees]
    ends = Ends.of_rows(rows, items)
    uppers = ends.upper(attempt.level)
    largest = int(uppers.argmax())
    worst = trees[largest]
    bound = worst.bounds["upper_certain"]
    if uppers[largest] < worst.upper_certain:
        bound = replace(worst.bounds["upper"], value=float(uppers[largest]), alpha=attempt.level)
    # Every question must pass at the level by itself (intersection-union), so the largest bound covers the worst one.
    bound = replace(bound, covers=Covers.WORST_PROMPT)
    cases = _gated(items, ends.lower(attempt.level), uppers)
    return gate_of(tau, attempt, bound, worst.id, questions=cases)


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


def label(
    call: Callable[..., labelling.LabelledBounds],
    arguments: Arguments,
    page: bool = False,
    to_mlflow: bool = False,
    from_mlflow: bool = False,
    worst: int = 0,
    as_json: bool = False,
) -> Outcome:
    """Ask a person at the terminal, unless JSON is wanted; or on a page of this machine; or by traces in MLflow.

    Parameters
    ----------
    page : Ask on a page of this machine (127.0.0.1, an address with a random key) until Ctrl-C or "Pause".
    to_mlflow : Log the labelled answers and the next ones as traces in MLflow, at most 50 over all calls, and ask nothing.
    from_mlflow : Take people's feedback "leaks" (true or false) on these traces as labels, and ask nothing.
    worst : With MLflow, also show (or take) this many answers that the verdicts call leaks, of the worst questions first.
    """
    check(worst >= 0, "worst", worst, "a whole number of at least 0")
    in_mlflow = to_mlflow or from_mlflow
    check(worst == 0 or in_mlflow, "worst", worst, "given with --to-mlflow or --from-mlflow")
    labels = arguments.get("labels")
    if page and (to_mlflow or from_mlflow):
        raise BadValue("--page", "together with MLflow", "a page, or MLflow", "Leave one out.")
    if page:
        return Outcome(call(**arguments, ask=label_on_page))
    if to_mlflow or from_mlflow:
        return _label_in_mlflow(call, arguments, to_mlflow, from_mlflow, worst)
    if as_json and labels is not None and not labels.is_file():
        raise BadFile(
            labels, "is no file", "Label first (without --json), or name the file of labels."
        )
    return Outcome(call(**arguments) if as_json else call(**arguments, ask=label_at_terminal))


def _label_in_mlflow(
    call: Callable[..., labelling.LabelledBounds],
    arguments: Arguments,
    show: bool,
    take: bool,
    worst: int,
) -> Outcome:
    """Labels from MLflow first, so that what is shown then is what is still asked."""
    from lethe.tracking import feedback

    said: list[str] = []

    def ask(queue: Queue, labels: Labels) -> None:
        if worst and not queue.draws.verdicts:
            raise BadValue("worst", worst, "left out where no verdicts of the answers are at hand")
        if take:
            said.append(feedback.take(queue, labels, worst))
        if show:
            said.append(feedback.show(queue, labels, worst))

    return Outcome(call(**arguments, ask=ask), {"mlflow": " ".join(said)}, said)


def check_file(call: Callable[..., twins.TwinCheck], arguments: Arguments) -> Outcome:
    """Exit with status 1 where a score without a model tells the true candidates."""
    result = call(**arguments)
    return Outcome(result, status=int(result.is_refused))


def open_file(call: Callable[..., twins.TwinSeal], arguments: Arguments) -> Outcome:
    """Exit with status 1 where rows, record and key do not belong together."""
    result = call(**arguments)
    return Outcome(result, status=int(bool(result.opened.problems)))


def read_log(
    call: Callable[..., logs.ShownLog], arguments: Arguments, table: Path | None = None
) -> Outcome:
    """Write the answers of a log.

    Parameters
    ----------
    table : Write the answers with their scores to this .csv file: `prompt_id, sample, text` and one column per score. An
        unscored answer has an empty cell, and `finish_reason` says why an answer is missing. A text that a spreadsheet
        would compute (`=1+2`) begins with an apostrophe, and a control character becomes an escape.
    """
    if table is None:
        return Outcome(call(**arguments))
    fresh("table", table, (".csv",))
    from lethe.measure.scores import with_reasons

    result = call(**arguments)
    write_rows(table, with_reasons(result, result.table()))
    return Outcome(result, notes=[f"The answers are in {table}."])


def score_log(
    call: Callable[..., logs.ShownScoredLog],
    arguments: Arguments,
    table: Path | None = None,
    to: Literal["table", "inspect", "mlflow"] = "table",
) -> Outcome:
    """Write the scores of a log.

    Parameters
    ----------
    table : A .csv or .parquet file; a .json file with --to inspect. [default: LOG.scores.parquet or .json, here]
    to : table; inspect: records for its precomputed_scores; mlflow: the table, and a run in MLflow with the means.
    """
    endings = (".json",) if to == "inspect" else (".parquet", ".csv")
    out = table or Path(f"{arguments['log'].name}.scores{endings[0]}")
    fresh("table", out, endings)
    result = call(**arguments, scratch=Path(".lethe/verdicts"))
    if to == "inspect":
        from lethe.measure.scores import score_records

        write_json(out, score_records(result))
    else:
        write_rows(out, result.table)
    run = None
    if to == "mlflow":
        from lethe.tracking import FromFile, log_file

        numbers: dict[str, float] = {}
        for name, scored, missing, mean in result.rows():
            numbers[f"{name}_scored"] = scored
            numbers[f"{name}_missing"] = missing
            if mean is not None:
                numbers[f"{name}_mean"] = mean
        log = result.log
        run = log_file(FromFile(log.path.name, numbers, {}, parameters_of(log), result.table))
    if to == "inspect":
        scores = f"--scorer precomputed_scores -S scores={out}"
        notes = [f"The records are in {out}: inspect score {arguments['log']} {scores}"]
    else:
        bounds = f"lethe bounds {out} --score {result.scorers[0]} --missing worst"
        notes = [f"The scores are in {out}: {bounds}"]
    if run is not None:
        notes.append(run)
    return Outcome(result, {"table": str(out), "mlflow": run}, notes)


def label_at_terminal(plan: LabelPlan, labels: Labels) -> None:
    """Ask a person for the labels that are left, one answer after the other, a key each."""
    place = visible(str(labels.path))
    unused = plan.unused(labels)
    if unused:
        others = "that this run and target do not ask for, kept"
        typer.echo(f"{place} has {plural(unused, 'label')} {others}.")
    if plan.ahead(labels) is not None:
        typer.echo(plan.sentence(labels))
        with _keys() as read_key:
            ask(plan, labels, read_key)
    typer.echo(f"Labelled: {plural(len(labels.by_answer), 'answer')}, in {place}.")
    if plan.ahead(labels) is not None:
        typer.echo("Labelling is not finished: run the same command again to continue.")


def label_on_page(plan: LabelPlan, labels: Labels) -> None:
    """Serve a page on this machine on which a person labels, until Ctrl-C; raises what made the server fail."""
    from lethe.report.label_page import LabelServer

    with LabelServer(plan, labels) as server:
        typer.echo(plan.sentence(labels), err=True)
        typer.echo(f"Label at {server.address} (Ctrl-C ends)", err=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
        if server.failed is not None:
            raise server.failed
    place = visible(str(labels.path))
    typer.echo(f"Labelled: {plural(len(labels.by_answer), 'answer')}, in {place}.", err=True)


def ask(
    queue: Queue, labels: Labels, read_key: ReadKey, show: Callable[[str], None] = typer.echo
) -> None:
    """Show one answer after the other and keep the label of each key, until nothing is left or a key ends it."""
    from lethe.labels.draws import Wanted

    questions = queue.draws.questions
    while True:
        ahead = queue.ahead(labels)
        if ahead is None:
            return
        draws = plural(queue.rest, "draw")
        place = f"a random draw of the rest, which bounds the average ({draws})"
        if ahead.asked.part == "mass":
            covered = f"{100 * ahead.covered:.1f}% of the mass"
            place = f"{covered} is labelled, until {100 * queue.reach:.1f}%"
        answer = ahead.answer
        wanted = queue.draws.wanted.get(answer.prompt_id, Wanted())
        compared = ""
        if wanted.reference:
            compared = f"Reference: {visible(wanted.reference)}\n"
        if wanted.keywords:
            compared += f"Keywords: {visible(', '.join(wanted.keywords))}\n"
        show(
            f"\n--- {place}; {ahead.left:,} to read\n"
            f"Question: {visible(questions.get(answer.prompt_id, answer.prompt_id))}\n{compared}"
            f"Answer ({ahead.count} of {plural(ahead.draws, 'draw')}): {visible(answer.text) or '(empty)'}\n"
            "y a leak, n no leak, u undo, q stop"
        )
        while True:
            key = read_key().lower()
            if key in END:
                return
            if key in KEYS:
                labels.add(ahead.answer, KEYS[key], ahead.asked, questions)
                break
            if key == "u" and labels.undo(questions, len(labels.by_answer)):
                break


@contextmanager
def _keys() -> Iterator[ReadKey]:
    """Single keys of the terminal, without Enter and without echo; the terminal is as before at the end."""
    import termios
    import tty

    if not sys.stdin.isatty():
        problem = "lethe label reads keys from a terminal, and standard input is no terminal"
        raise BadInput(f"{problem}: use --json for the bounds.")
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setcbreak(terminal)
        yield lambda: os.read(terminal, 1).decode(errors="replace")
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
