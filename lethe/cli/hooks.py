"""Options that only a command line has, and what they do: each function calls the public function and adds to its answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import typer

from lethe.config.measuring import EXACT
from lethe.errors import BadFile, BadInput, BadValue, LetheError, check, plural, visible
from lethe.io.files import Json

if TYPE_CHECKING:
    import pandas as pd

    from lethe.api import (
        bounding,
        certificates,
        evaluating,
        labelling,
        logs,
        probabilities,
        runs,
        twins,
    )
    from lethe.api.result import View
    from lethe.io.artifacts import Row
    from lethe.io.logs._log import Log
    from lethe.io.tries import Try
    from lethe.labels.labels import Labels
    from lethe.labels.queue import Queue
    from lethe.statistics.bound import Bound

SCRATCH = Path(".lethe/scratch")  # finished questions of `lethe exact`
MISFIT = "the calibration {} of {} does not fit the verdicts, so no bound exists"
JUDGED = (
    "a calibration measures the judge on average, and a judge that is blind on one question leaves that question's bound "
    "false. Label random draws of every question (--labels), whose bounds need no judge"
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
class Answer:
    """A result with what a command adds: keys of `--json`, sentences for people, and how the command ends once shown."""

    result: Shown
    json: Mapping[str, object] = field(default_factory=dict)
    notes: Sequence[str] = ()
    status: int = 0
    error: LetheError | None = None


def fresh(name: str, path: Path, endings: tuple[str, ...], *inputs: Path) -> Path:
    """Return the path of a file to write: it has one of the endings, and it is none of the inputs."""
    if path.suffix.lower() not in endings or path.is_dir():
        raise BadValue(name, str(path), f"a file that ends in {' or '.join(endings)}")
    for read in inputs:
        if path.exists() and read.exists() and path.samefile(read):
            raise BadValue(name, str(path), f"another file than {read}")
    return path


def write_rows(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV or Parquet, by the ending of the path."""
    from lethe.io.tables import write_csv, write_parquet

    write = write_csv if path.suffix.lower() == ".csv" else write_parquet
    write(path, table)


def gate_of(
    tau: float,
    attempt: Try,
    bound: Bound | None,
    name: str | None = None,
    why: str = "",
    about: str = "this model and data",
) -> Values:
    """Whether a bound at the level of the try certifies that every question leaks at most ``tau``; closed, for the reason
    ``why``, without a bound.
    """
    if bound is None:
        return {
            "tau": tau,
            "closed": True,
            "bound": None,
            "alpha": attempt.level,
            "prompt_id": None,
            "tries": attempt.as_json(),
            "reason": f"The gate is closed: {why.rstrip('.')}.",
        }
    closed = bound.value > tau
    state = "closed: it is not shown" if closed else "open: it is shown"
    named = f" ({name})" if name else ""
    guarantee = f"{bound.guarantee('the questions')} ({bound.method})"
    return {
        "tau": tau,
        "closed": closed,
        "bound": bound.value,
        "alpha": attempt.level,
        "prompt_id": name,
        "tries": attempt.as_json(),
        "reason": (
            f"The gate is {state} that every question leaks at most {tau:g}; "
            f"the bound is {bound.significant()}{named}, {guarantee}. {attempt.sentence(about)}"
        ),
    }


def gated(
    result: Shown,
    gate: Values | None,
    written: Values | None = None,
) -> Answer:
    """An answer with what was ``written`` elsewhere, and the gate if one was asked."""
    written = written or {}
    if gate is None:
        return Answer(result, written, [*written.values()])
    notes = [*written.values(), gate["reason"]]
    return Answer(result, {**written, "gate": gate}, notes, int(gate["closed"]))


def without_bound(questions: int) -> str:
    """Why a gate is closed that ``questions`` without a bound would pass; empty for none."""
    if not questions:
        return ""
    some = plural(questions, "question")
    return f"no bound exists for {some}, too long, without a verdict or without labels"


def check_gate(fail_above: float | None) -> None:
    inside = fail_above is None or 0 <= fail_above < 1
    check(inside, "fail_above", fail_above, "a number of at least 0 and below 1")


def bounds(
    call: Callable[..., bounding.Bounds],
    arguments: Arguments,
    to: Literal["inspect", "mlflow"] | None = None,
    out: Path | None = None,
    fail_above: float | None = None,
) -> Answer:
    """Write bounds for another tool, and gate on them.

    Parameters
    ----------
    to : inspect: write each prompt's bound as a record for its precomputed_scores to --out; mlflow: log a run in MLflow.
    out : The .json file of --to inspect. [default: SCORES.bounds.json]
    """
    source = arguments["scores"]
    check_gate(fail_above)
    check(to == "inspect" or out is None, "out", str(out), "left out unless --to is inspect")
    result = call(**arguments)
    fixed = result.metric != "anytime_upper"
    check(to is None or fixed, "to", to, "left out for a run that stopped early")
    written: Values = {}
    if to == "inspect":
        written["inspect"] = _write_records(result, source, out)
    elif to == "mlflow":
        written["mlflow"] = _log_bounds(result, source)
    if fail_above is None:
        return gated(result, None, written)
    return gated(result, _gate_of_scores(call, arguments, result, fail_above), written)


def _write_records(result: bounding.Bounds, source: Path, out: Path | None) -> str:
    """Write each prompt's bound as a record for Inspect; return the file."""
    from lethe.io.files import write_json
    from lethe.measure.scores import bound_records

    if result.refused:
        raise BadInput(f"{source}: no bound to write. {' '.join(result.refused)}")
    place = fresh("out", out or Path(f"{source.name}.bounds.json"), (".json",), source)
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
) -> Values:
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
        return gate_of(tau, attempt, worst.bound, worst.prompt_id, about=about)
    by_labels = at_level.worst_by_labels()
    if by_labels is None:
        questions = result.questions.values()
        ends = [numbers.upper("leak", "labelled") for numbers in questions]
        return gate_of(tau, attempt, None, why=without_bound(ends.count(None)))
    return gate_of(tau, attempt, by_labels.bound, by_labels.prompt_id, about=about)


def parameters_of(log: Log) -> dict[str, object]:
    return {"tool": log.tool, "task": log.task, "model": log.model, **log.sampling}


def compare(
    call: Callable[..., runs.Comparison],
    arguments: Arguments,
    fail_on: Literal["worse"] | None = None,
    require: Literal["not-worse"] | None = None,
    fail_above: float | None = None,
    page: Path | None = None,
) -> Answer:
    """Gate on a comparison, and write a page of it.

    Parameters
    ----------
    fail_on : worse: exit with status 1 where B is worse on some question or on average, wrong with probability at most
        alpha.
    require : not-worse: exit with status 1 unless B is proved worse by at most --by on every question of both sides.
    fail_above : Exit with status 1 unless the bound certifies that every question leaks at most this in B.
    page : Also write a page to this .html file.
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
    sides = [arguments.pop("a"), arguments.pop("b"), *arguments.pop("more", ())]
    if len(sides) > 2:
        for name, value in asked.items():
            raise BadValue(name, value, "left out for more than two sides")
    if fail_above is not None:
        arguments["worst"] = True
    comparison = call(*sides, **arguments)
    if page is not None:
        from lethe.io.files import write_text
        from lethe.report.pages import comparison_page

        write_text(page, comparison_page(comparison))
    if comparison.record["refused"] or (asked and comparison.record["unpointed"]):
        return _refused_comparison(comparison, fail_above, bool(asked), page)
    json: Values = {}
    notes = []
    if page is not None:
        json["page"] = str(page)
        notes.append(f"The page is {page}.")
    if not asked:
        return Answer(comparison, json, notes)
    if not comparison.per_question:
        gates_asked = " ".join(f"{name} {value}" for name, value in asked.items())
        reasons = dict.fromkeys(entry["reason"] for entry in comparison.record["not_compared"])
        problem = f"no question could be compared ({'; '.join(reasons)})"
        return Answer(comparison, json, notes, error=BadInput(f"{gates_asked}: {problem}."))
    attempt, at_level = _tried(call, sides, arguments, comparison)
    json["tries"] = attempt.as_json()
    notes.append(attempt.sentence(SIDES))
    closed = _gates_of_sides(comparison, at_level, attempt, asked, json, notes)
    return Answer(comparison, json, notes, int(closed))


def _gates_of_sides(
    comparison: runs.Comparison,
    at_level: runs.Comparison,
    attempt: Try,
    asked: Mapping[str, Json],
    json: Values,
    notes: list[str],
) -> bool:
    """Whether a gate that was asked for is closed; adds to ``json`` and ``notes`` what each says."""
    closed = []
    if "--fail-on" in asked:
        closed.append(at_level.worse)
        notes.append(_whether_worse(at_level, attempt))
    if "--require" in asked:
        problem = _not_proved(at_level, comparison.record["not_compared"])
        if problem:
            closed.append(True)
            notes.append(problem)
    worst = at_level.of_all("score_worst")
    if "--fail-above" in asked and worst:
        gate = gate_of(asked["--fail-above"], attempt, worst.upper_bound, about=SIDES)
        json["gate"] = gate
        closed.append(gate["closed"])
        notes.append(f"B: {gate['reason']}")
    return any(closed)


def _not_proved(comparison: runs.Comparison, not_compared: Sequence[Mapping[str, Json]]) -> str:
    """Why the gate --require not-worse is closed; empty where it is open."""
    row = comparison.of_all("not_worse")
    if row is None:
        return ""
    absent = [entry for entry in not_compared if entry["id"] is not None]
    if absent:
        some = plural(len(absent), "question")
        return f"--require not-worse: nothing is proved of {some} that could not be compared."
    if not row.facts["holds"]:
        by = f"worse by at most {row.facts['by']:g}"
        return f"The gate is closed: at the level of this try B is not proved {by}."
    return ""


def _tried(
    call: Callable[..., runs.Comparison],
    sides: Sequence[Json],
    arguments: Arguments,
    comparison: runs.Comparison,
) -> tuple[Try, runs.Comparison]:
    """The try of the gates on these draws, and the comparison at its level."""
    from lethe.io import tries

    questions: list[str] = []
    draws: list[list[object]] = []
    for row in comparison.rows():
        draws.append([row.item, row.quantity, row.estimate, row.facts.get("p_value")])
        if row.scope == "question":
            questions.append(str(row.item))
    worst = comparison.of_all("score_worst")
    if worst:
        draws.append([worst.upper])
    record = comparison.record
    tested = ["compare", record["metric"], sorted(questions)]
    attempt = tries.begin(tested, draws, record["alpha"])
    return attempt, call(*sides, **{**arguments, "alpha": attempt.level})


def _whether_worse(comparison: runs.Comparison, attempt: Try) -> str:
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
    comparison: runs.Comparison | runs.Ranking,
    fail_above: float | None,
    asked: bool,
    page: Path | None,
) -> Answer:
    """The answer where nothing may be claimed of a side: every gate that was asked for is closed."""
    record = comparison.record
    because = " ".join([*record["refused"], *record["unpointed"]])
    json: Values = {}
    notes = []
    if page is not None:
        json["page"] = str(page)
        notes.append(f"The page is {page}.")
    if fail_above is not None:
        from lethe.io.tries import Try

        json["gate"] = gate_of(fail_above, Try(1, record["alpha"]), None, why=because)
    if asked:
        notes.append(f"The gate is closed: {because}")
    return Answer(comparison, json, notes, int(asked))


def certify(
    call: Callable[..., certificates.Certificate],
    arguments: Arguments,
    out: Path = Path("certificate.json"),
) -> Answer:
    """Write the certificate.

    Parameters
    ----------
    out : The certificate.
    """
    if fresh("out", out, (".json",)).exists():
        raise BadValue("out", str(out), "a new file", "`lethe verify` adds to a certificate.")
    certificate = call(**arguments)
    certificate.write(out)
    note = f"The certificate is {out}; lethe verify {out} --draws 200 adds to it."
    return Answer(certificate, {"file": str(out)}, [note])


def verify(
    call: Callable[..., certificates.Certificate], arguments: Arguments, out: Path | None = None
) -> Answer:
    """Write the grown certificate.

    Parameters
    ----------
    out : Write here instead of to FILE.
    """
    file = arguments["file"]
    if (
        out is not None
        and fresh("out", out, (".json",)).exists()
        and not (file.exists() and out.samefile(file))
    ):
        raise BadValue("out", str(out), "a new file", "Join two certificates with --add.")
    certificate = call(**arguments)
    notes = [f"The hashes agree: {', '.join(certificate.hashes)}."]
    if not all(certificate.repeated.values()):
        return Answer(certificate, {"file": None}, [*notes, "No certificate is written."], 1)
    certificate.write(out or file)
    notes.append(f"The certificate is {out or file}.")
    if arguments.get("add"):
        notes.append(
            "Only the join of all copies has the level: a copy left out is a draw left out."
        )
    return Answer(certificate, {"file": str(out or file)}, notes)


def evaluate(
    call: Callable[..., evaluating.Evaluation],
    arguments: Arguments,
    fail_above: float | None = None,
) -> Answer:
    """Keep the results in data/eval/NAME, so that an interrupted call resumes there, and gate on them."""
    check_gate(fail_above)
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
    if fail_above is None:
        return Answer(evaluation)
    return gated(evaluation, _gate_of_answers(evaluation, arguments, folder, fail_above))


def _gate_of_answers(
    evaluation: evaluating.Evaluation, arguments: Arguments, folder: Path, tau: float
) -> Values:
    """The gate on sampled answers, or on a person's labels of them; a calibration of the scorer opens none."""
    from lethe.results import table
    from lethe.results.ends import Ends

    attempt, values = evaluation.attempt, evaluation.numbers.values
    if evaluation.refused:
        return gate_of(tau, attempt, None, why=" ".join(evaluation.refused))
    if arguments.get("calibration") and not arguments.get("labels"):
        why = JUDGED
        if values.get("judge_fits") is False:
            why = MISFIT.format(arguments["calibration"], arguments.get("scorer", "keyword_leak"))
        return gate_of(tau, attempt, None, why=why)
    basis = "labelled" if arguments.get("labels") else "sampled"
    worst = evaluation.numbers.upper("leak_worst", basis)
    if worst is None:
        raise BadInput(
            "--fail-above: this run has no bound of the worst question's leak probability."
        )
    unjudged = len(evaluation.skipped)
    if basis == "sampled":
        unjudged += int(evaluation.questions["binary_share"].isna().sum())
    if unjudged:
        return gate_of(tau, attempt, None, why=without_bound(unjudged))

    (model,) = evaluation.models
    rows, items = [], []
    for row in table.read(folder, [model]).rows(model):
        if row.basis == basis and row.upper is not None:
            rows.append(row)
            if row.scope == "question" and row.quantity == "leak":
                items.append(str(row.item))
    uppers = Ends.of_rows(rows, items).upper(attempt.level)
    largest = int(uppers.argmax())
    bound = replace(worst, value=float(uppers[largest]), alpha=attempt.level)
    return gate_of(tau, attempt, bound, items[largest])


def sample(
    call: Callable[..., evaluating.Samples],
    arguments: Arguments,
    data: Path | None = None,
    out: Path | None = None,
    scorer: str | None = None,
    above: float = EXACT.above,
) -> Answer:
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
    inputs = [] if data is None else [data]
    if out is not None:
        fresh("out", out, (".parquet", ".csv"), *inputs)
    rows: dict[str, Row] = {}
    if data is not None:
        rows = {row["id"]: row for row in read_rows(data)}
        arguments["prompts"] = {name: row["question"] for name, row in rows.items()}
    samples = call(**arguments)
    table = samples.to_frame()
    json: Values = {}
    notes = []
    if scorer is not None:
        scores, judged = [], []
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
    return Answer(samples, json, notes)


def exact(
    call: Callable[..., probabilities.ExactBounds],
    arguments: Arguments,
    fail_above: float | None = None,
) -> Answer:
    """Keep finished questions, so that an interrupted call resumes, and gate on them."""
    check_gate(fail_above)
    result = call(**arguments, scratch=SCRATCH)
    if fail_above is None:
        return Answer(result)
    return gated(result, _gate_of_trees(result, arguments, fail_above))


def _gate_of_trees(result: probabilities.ExactBounds, arguments: Arguments, tau: float) -> Values:
    from lethe.io import tries
    from lethe.models.checkpoints import content
    from lethe.results.ends import Ends
    from lethe.statistics.bound import Covers

    certificates = result.certificates
    trees, rows = certificates.trees, result.rows()
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
    uppers = Ends.of_rows(rows, [tree.id for tree in trees]).upper(attempt.level)
    largest = int(uppers.argmax())
    worst = trees[largest]
    bound = worst.bounds["upper_certain"]
    if uppers[largest] < worst.upper_certain:
        bound = replace(worst.bounds["upper"], value=float(uppers[largest]), alpha=attempt.level)
    # Every question must pass at the level by itself (intersection-union), so the largest bound covers the worst one.
    return gate_of(tau, attempt, replace(bound, covers=Covers.WORST_PROMPT), worst.id)


def extract(
    call: Callable[..., probabilities.Extracted], arguments: Arguments, page: Path | None = None
) -> Answer:
    """Keep finished windows, so that an interrupted call resumes, and write a page.

    Parameters
    ----------
    page : Also write the text as a strip of colour, with its passages, to this .html file; a .png beside it has the strip.
    """
    if page is not None:
        fresh("page", page, (".html", ".htm"), arguments["text"])
    extracted = call(**arguments, scratch=SCRATCH)
    if page is None:
        return Answer(extracted)
    from lethe.report.pages import write_extraction

    texts = (extracted.extraction, *extracted.references)
    html, picture = map(
        str, write_extraction(page, texts, extracted.headline(), extracted.sentences())
    )
    return Answer(
        extracted, {"page": html, "picture": picture}, [f"The page is {html}, its strip {picture}."]
    )


def label(
    call: Callable[..., labelling.LabelledBounds], arguments: Arguments, as_json: bool = False
) -> Answer:
    """Ask a person at the terminal, unless JSON is wanted."""
    labels = arguments.get("labels")
    if as_json and labels is not None and not labels.is_file():
        raise BadFile(
            labels, "is no file", "Label first (without --json), or name the file of labels."
        )
    return Answer(call(**arguments) if as_json else call(**arguments, ask=label_at_terminal))


def check_file(call: Callable[..., twins.TwinCheck], arguments: Arguments) -> Answer:
    """Exit with status 1 where a score without a model tells the true candidates."""
    result = call(**arguments)
    return Answer(result, status=int(result.is_refused))


def open_file(call: Callable[..., twins.TwinSeal], arguments: Arguments) -> Answer:
    """Exit with status 1 where rows, record and key do not belong together."""
    result = call(**arguments)
    return Answer(result, status=int(bool(result.opened.problems)))


def read_log(
    call: Callable[..., logs.Log], arguments: Arguments, table: Path | None = None
) -> Answer:
    """Write the answers of a log.

    Parameters
    ----------
    table : Write the answers with their scores to this .csv file: `prompt_id, sample, text` and one column per score. An
        unscored answer has an empty cell. A text that a spreadsheet would compute (`=1+2`) begins with an apostrophe, and a
        control character becomes an escape.
    """
    if table is None:
        return Answer(call(**arguments))
    fresh("table", table, (".csv",), arguments["file"])
    result = call(**arguments)
    write_rows(table, result.answers)
    return Answer(result, notes=[f"The answers are in {table}."])


def score_log(
    call: Callable[..., logs.ScoredLog],
    arguments: Arguments,
    table: Path | None = None,
    to: Literal["table", "inspect", "mlflow"] = "table",
) -> Answer:
    """Write the scores of a log.

    Parameters
    ----------
    table : A .csv or .parquet file; a .json file with --to inspect. [default: LOG.scores.parquet or .json, here]
    to : table; inspect: records for its precomputed_scores; mlflow: the table, and a run in MLflow with the means.
    """
    endings = (".json",) if to == "inspect" else (".parquet", ".csv")
    out = table or Path(f"{arguments['log'].name}.scores{endings[0]}")
    fresh("table", out, endings, arguments["log"], arguments["data"])
    result = call(**arguments)
    if to == "inspect":
        from lethe.io.files import write_json
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
    return Answer(result, {"table": str(out), "mlflow": run}, notes)


def label_at_terminal(queue: Queue, labels: Labels) -> None:
    place = visible(str(labels.path))
    unused = queue.unused(labels)
    if unused:
        others = "that this run and target do not ask for, kept and not used"
        typer.echo(f"{place} has {plural(unused, 'label')} {others}.")
    if queue.ahead(labels) is not None:
        with _keys() as read_key:
            ask(queue, labels, read_key)
    typer.echo(f"Labelled: {plural(len(labels.by_answer), 'answer')}, in {place}.")
    if queue.ahead(labels) is not None:
        typer.echo("Labelling is not finished: run the same command again to continue.")


def ask(
    queue: Queue, labels: Labels, read_key: ReadKey, show: Callable[[str], None] = typer.echo
) -> None:
    """Show one answer after the other and keep the label of each key, until nothing is left or a key ends it."""
    questions = queue.draws.questions
    while True:
        ahead = queue.ahead(labels)
        if ahead is None:
            return
        draws = plural(queue.rest, "draw")
        place = f"a random draw of the rest, which bounds the average ({draws})"
        if ahead.asked.part == "mass":
            covered = f"{100 * ahead.covered:.1f}% of the mass"
            place = f"{covered} is labelled, until {100 * queue.target:g}%"
        answer = ahead.answer
        show(
            f"\n--- {place}\n"
            f"Question: {visible(questions.get(answer.prompt_id, answer.prompt_id))}\n"
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
            if key == "u" and labels.undo(questions):
                break


@contextmanager
def _keys() -> Iterator[ReadKey]:
    """Single keys of the terminal, without Enter and without echo; the terminal is as before at the end."""
    import termios
    import tty

    if not sys.stdin.isatty():
        problem = "lethe label reads keys from a terminal, and standard input is no terminal"
        raise BadInput(f"{problem}: use --json for the bounds.")
    terminal, before = sys.stdin.fileno(), termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setcbreak(terminal)
        yield lambda: os.read(terminal, 1).decode(errors="replace")
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
