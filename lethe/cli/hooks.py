"""Options that only a command line has, and what they do: each function calls the public function and adds to its answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from lethe.cli.generate import Answer
from lethe.errors import BadFile, BadInput, BadValue, plural, visible

if TYPE_CHECKING:
    import pandas as pd

    from lethe.evaluation.labels import Ahead, Labels, Queue

SCRATCH = Path(".lethe/scratch")  # finished questions of `lethe exact`
# Upper ends of `lethe eval`, the first that a run has: by labels, with a judge's error, n fixed, stopped early.
LARGEST_LEAK = ("labelled_worst", "judged_worst", "m_bin_worst", "anytime_upper_worst")
MISFIT = "the calibration {} of {} does not fit the verdicts, so no bound exists"
KEYS = {"y": 1, "1": 1, "n": 0, "0": 0}
END = ("q", "\x03", "\x04", "")  # q, Ctrl-C, Ctrl-D, and the end of the input

Given = dict[str, Any]
Call = Callable[..., Any]
ReadKey = Callable[[], str]


def fresh(name: str, path: Path, endings: tuple[str, ...], *inputs: Path) -> Path:
    """Return the path of a file to write: it has one of the endings, and it is none of the inputs."""
    if path.suffix.lower() not in endings or path.is_dir():
        raise BadValue(name, str(path), f"a file that ends in {' or '.join(endings)}")
    for one in inputs:
        if path.exists() and one.exists() and path.samefile(one):
            raise BadValue(name, str(path), f"another file than {one}")
    return path


def write_rows(path: Path, table: pd.DataFrame) -> None:
    from lethe.io.tables import write_csv, write_parquet

    (write_csv if path.suffix.lower() == ".csv" else write_parquet)(path, table)


def gate_of(name: str | None, bound: Any, tau: float) -> tuple[Given, str]:
    """The key `gate`, and the sentence on whether a bound certifies that every question leaks at most ``tau``."""
    closed = bound.value > tau
    state, named = "closed: it is not shown" if closed else "open: it is shown", f" ({name})" if name else ""
    sentence = (
        f"The gate is {state} that every question leaks at most {tau:g}; the bound is {bound.significant()}{named}, "
        f"{bound.guarantee('the questions')} ({bound.method})."
    )
    facts = {"tau": tau, "closed": closed, "bound": bound.value, "alpha": bound.alpha, "prompt_id": name}
    return {**facts, "reason": sentence}, sentence


def closed_gate(tau: float, alpha: float | None, why: str) -> tuple[Given, str]:
    """The gate where some question has no bound."""
    sentence = f"The gate is closed: {why}."
    facts = {"tau": tau, "closed": True, "bound": None, "alpha": alpha, "prompt_id": None}
    return {**facts, "reason": sentence}, sentence


def gated(result: Any, name: str | None, bound: Any, tau: float, without: int) -> Answer:
    """An answer with the gate, which is closed if some questions are ``without`` a bound."""
    if without:
        why = f"no bound exists for {plural(without, 'question')}, too long or without a verdict"
        gate, reason = closed_gate(tau, bound.alpha, why)
    else:
        gate, reason = gate_of(name, bound, tau)
    return Answer(result, {"gate": gate}, [reason], int(gate["closed"]))


def check_gate(fail_above: float | None) -> None:
    if fail_above is not None and not 0 <= fail_above < 1:
        raise BadValue("fail_above", fail_above, "a number of at least 0 and below 1")


def bounds(
    call: Call,
    given: Given,
    as_json: bool,
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
    source = given["scores"]
    check_gate(fail_above)
    if to != "inspect" and out is not None:
        raise BadValue("out", str(out), "left out unless --to is inspect")
    result = call(**given)
    if to is not None and result.log and result.log.stopped_early:
        raise BadValue("to", to, "left out for a run that stopped early")
    written: dict[str, Any] = {}
    if to == "inspect":
        from lethe.evaluation.score_files import bound_records
        from lethe.io.json_files import write_json

        place = fresh("out", out or Path(f"{source.name}.bounds.json"), (".json",), source)
        write_json(place, bound_records(result))
        written = {"inspect": str(place)}
    elif to == "mlflow":
        written = {"mlflow": _bounds_logged(result, source.name)}
    notes = [*written.values()]
    if fail_above is None:
        return Answer(result, written, notes)
    judged = getattr(result, "judged", None)
    if judged and judged.worst is None:
        judge = judged.calibration.judge or "the judge"
        gate, reason = closed_gate(fail_above, judged.alpha, MISFIT.format(given["calibration"], judge))
    else:
        worst = result.worst()
        name, bound = (judged.worst[0], judged.worst[2]) if judged else (worst.prompt_id, worst.bound)
        gate, reason = gate_of(name, bound, fail_above)
    return Answer(result, {**written, "gate": gate}, [*notes, reason], int(gate["closed"]))


def _bounds_logged(result: Any, name: str) -> str:
    from lethe.results.table import Numbers
    from lethe.tracking.runs import log_bounded

    counts = {"questions": len(result.prompts), "answers": sum(one.n for one in result.prompts)}
    counts["missing"] = sum(one.missing for one in result.prompts)
    ends = Numbers([row for row in result.rows() if row.scope == "model"]).bounds
    params = {"alpha": result.settings.alpha, **parameters_of(result.log.log if result.log else None)}
    return log_bounded(name, counts, ends, params, result.to_frame(), Path.cwd())


def parameters_of(log: Any) -> dict[str, object]:
    return {"tool": log.tool, "task": log.task, "model": log.model, **log.sampling} if log else {}


def compare(
    call: Call,
    given: Given,
    as_json: bool,
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
    if require and "by" not in given:
        raise BadValue("require", require, "given with --by D, the largest difference that is allowed")
    check_gate(fail_above)
    gates = {"--fail-on": fail_on, "--require": require, "--fail-above": fail_above}
    asked = {name: value for name, value in gates.items() if value is not None}
    sides = [given[name] for name in ("a", "b")] + list(given.get("more", ()))
    rest = {name: value for name, value in given.items() if name not in ("a", "b", "more")}
    if asked and len(sides) > 2:
        raise BadValue(next(iter(asked)), next(iter(asked.values())), "left out for more than two sides")
    comparison = call(*sides, **rest, **({"worst": True} if fail_above is not None else {}))
    if page is not None:
        from lethe.io.atomic import write_text
        from lethe.report.pages import comparison_page

        write_text(page, comparison_page(comparison))
    error, named = None, " ".join(f"{name} {value}" for name, value in asked.items())
    if named and not comparison.per_question:
        reasons = "; ".join(dict.fromkeys(one.reason for one in comparison.not_compared))
        error = BadInput(f"{named}: no question could be compared ({reasons}).")
    json: dict[str, Any] = {"page": str(page)} if page else {}
    notes = [f"The page is {page}."] if page else []
    closed = []
    if fail_on and comparison.per_question:
        closed.append(comparison.worse)
        worse = [str(one.id) for one in comparison.per_question if one.outcome == "worse"]
        where = (
            f"on {plural(len(worse), 'question')} ({worse[0]}{', …' * (len(worse) > 1)})"
            if worse
            else "on average"
        )
        state = f"closed: B is worse {where}" if comparison.worse else "open: B is not shown to be worse"
        notes.append(
            f"The gate is {state}; it closes without a true difference with probability at most {comparison.alpha:g}."
        )
    if require and comparison.not_worse is not None:
        absent = [one for one in comparison.not_compared if one.id is not None]
        closed.append(not comparison.not_worse.holds or bool(absent))
        if absent:
            notes.append(
                f"--require not-worse: {len(absent)} questions are not compared, so nothing is proved of them."
            )
    if fail_above is not None and comparison.worst_of_b is not None:
        json["gate"], reason = gate_of(None, comparison.worst_of_b, fail_above)
        closed.append(json["gate"]["closed"])
        notes.append(f"B: {reason}")
    return Answer(comparison, json, notes, int(any(closed)), error)


def certify(call: Call, given: Given, as_json: bool, out: Path = Path("certificate.json")) -> Answer:
    """Write the certificate.

    Parameters
    ----------
    out : The certificate.
    """
    if fresh("out", out, (".json",)).exists():
        raise BadValue("out", str(out), "a new file", "`lethe verify` adds to a certificate.")
    certificate = call(**given)
    certificate.write(out)
    note = f"The certificate is {out}; lethe verify {out} --draws 200 adds to it."
    return Answer(certificate, {"file": str(out)}, [note])


def verify(call: Call, given: Given, as_json: bool, out: Path | None = None) -> Answer:
    """Write the grown certificate.

    Parameters
    ----------
    out : Write here instead of to FILE.
    """
    file = given["file"]
    if out is not None and fresh("out", out, (".json",)).exists() and not (file.exists() and out.samefile(file)):
        raise BadValue("out", str(out), "a new file", "Join two certificates with --add.")
    certificate = call(**given)
    certificate.write(out or file)
    notes = [f"The hashes agree: {', '.join(certificate.hashes)}.", f"The certificate is {out or file}."]
    if given.get("add"):
        notes.append("Only the join of all copies has the level: a copy left out is a draw left out.")
    return Answer(certificate, {"file": str(out or file)}, notes, int(not all(certificate.repeated.values())))


def evaluate(call: Call, given: Given, as_json: bool, fail_above: float | None = None) -> Answer:
    """Keep the results in data/eval/NAME, so that an interrupted call resumes there, and gate on them."""
    check_gate(fail_above)
    from lethe.models import hub
    from lethe.steps.evaluate import Interrupted, evaluated_model

    model: Path = given["model"]
    place = f"{model} at {given['endpoint']}" if "endpoint" in given else str(model.resolve())
    if "endpoint" in given:
        model = Path(str(model).replace("/", "-"))
    elif not model.exists() and (named := hub.hub_name(model)):
        model = named.folder  # to which the public function fetches it, once all else is checked
        place = str(model.resolve())
    name = given["name"] if "name" in given else model.resolve().name.replace("@", "-")
    folder = Path("data/eval", name)
    if "name" not in given and (other := evaluated_model(folder)) not in (None, place):
        raise BadInput(
            f"{folder} holds the evaluation of {other}. Give this one a name of its own: --name, for example "
            f"{'other' if 'endpoint' in given else model.resolve().parent.name}-{name}."
        )
    try:
        evaluation = call(**{**given, "name": name}, folder=folder)
    except KeyboardInterrupt:
        raise Interrupted(folder / "answers") from None
    ends = evaluation.numbers.bounds
    worst = next((ends[key] for key in LARGEST_LEAK if key in ends), None)
    if fail_above is None:
        return Answer(evaluation)
    if evaluation.numbers.values.get("judge_fits") is False and "labelled_worst" not in ends:
        why = MISFIT.format(given["calibration"], given.get("scorer", "keyword_leak"))
        gate, reason = closed_gate(fail_above, evaluation.numbers.values.get("alpha"), why)
        return Answer(evaluation, {"gate": gate}, [reason], 1)
    if worst is None:
        raise BadInput("--fail-above: this run has no bound of the worst question's leak probability.")
    unjudged = 0 if "labelled_worst" in ends else int(evaluation.questions["binary_share"].isna().sum())
    return gated(evaluation, None, worst, fail_above, len(evaluation.skipped) + unjudged)


def sample(call: Call, given: Given, as_json: bool, data: Path | None = None, out: Path | None = None) -> Answer:
    """Ask the questions of a file, and write the answers.

    Parameters
    ----------
    data : Ask the questions of this dataset instead: JSON lines with id, question, answer.
    out : Write the answers to this .parquet or .csv file: `prompt_id, sample, text, tokens, finish_reason,
        mean_confidence`.
    """
    from lethe.data.rows import read_rows

    if (data is None) == ("prompts" not in given):
        raise BadInput("lethe sample: give PROMPTS, or the questions of a file with --data, and not both.")
    if out is not None:
        fresh("out", out, (".parquet", ".csv"), *([data] if data else []))
    if data is not None:
        given["prompts"] = {row["id"]: row["question"] for row in read_rows(data)}
    samples = call(**given)
    if out is None:
        return Answer(samples)
    write_rows(out, samples.to_frame())
    return Answer(samples, {"file": str(out)}, [f"The answers are in {out}."])


def exact(call: Call, given: Given, as_json: bool, fail_above: float | None = None) -> Answer:
    """Keep finished questions, so that an interrupted call resumes, and gate on them."""
    check_gate(fail_above)
    result = call(**given, scratch=SCRATCH)
    worst = max(result.certificates.trees, key=lambda tree: tree.bounds["upper"].value)
    if fail_above is None:
        return Answer(result)
    return gated(result, worst.id, worst.bounds["upper"], fail_above, len(result.certificates.skipped))


def extract(call: Call, given: Given, as_json: bool, page: Path | None = None) -> Answer:
    """Keep finished windows, so that an interrupted call resumes, and write a page.

    Parameters
    ----------
    page : Also write the text as a strip of colour, with its passages, to this .html file; a .png beside it has the strip.
    """
    if page is not None:
        fresh("page", page, (".html", ".htm"), given["text"])
    extracted = call(**given, scratch=SCRATCH)
    if page is None:
        return Answer(extracted)
    from lethe.report.pages import write_extraction

    texts = (extracted.found, *extracted.references)
    html, picture = map(str, write_extraction(page, texts, extracted.headline(), extracted.sentences()))
    return Answer(extracted, {"page": html, "picture": picture}, [f"The page is {html}, its strip {picture}."])


def label(call: Call, given: Given, as_json: bool) -> Answer:
    """Ask a person at the terminal, unless JSON is wanted."""
    labels = given.get("labels")
    if as_json and labels is not None and not labels.is_file():
        raise BadFile(labels, "is no file", "Label first (without --json), or name the file of labels.")
    if as_json:
        return Answer(call(**given))
    return Answer(call(**given, ask=label_at_terminal))


def read_log(call: Call, given: Given, as_json: bool, table: Path | None = None) -> Answer:
    """Write the answers of a log.

    Parameters
    ----------
    table : Write the answers with their scores to this .csv file: `prompt_id, sample, text` and one column per score. An
        unscored answer has an empty cell. A text that a spreadsheet would compute (`=1+2`) begins with an apostrophe, and a
        control character becomes an escape.
    """
    if table is None:
        return Answer(call(**given))
    fresh("table", table, (".csv",), given["file"])
    result = call(**given)
    write_rows(table, result.answers)
    return Answer(result, notes=[f"The answers are in {table}."])


def score_log(
    call: Call,
    given: Given,
    as_json: bool,
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
    out = table or Path(f"{given['log'].name}.scores{endings[0]}")
    fresh("table", out, endings, given["log"], given["data"])
    result = call(**given)
    if to == "inspect":
        from lethe.evaluation.score_files import score_records
        from lethe.io.json_files import write_json

        write_json(out, score_records(result))
    else:
        write_rows(out, result.table)
    run = _logged(result) if to == "mlflow" else None
    place = (
        f"The records are in {out}: inspect score {given['log']} --scorer precomputed_scores -S scores={out}"
        if to == "inspect"
        else f"The scores are in {out}: lethe bounds {out} --score {result.scorers[0]} --missing worst"
    )
    return Answer(result, {"table": str(out), "mlflow": run}, [place, *([run] if run else [])])


def _logged(result: Any) -> str:
    from lethe.tracking.runs import log_bounded

    numbers: dict[str, float] = {}
    for name, scored, missing, mean in result.rows():
        numbers |= {f"{name}_scored": scored, f"{name}_missing": missing}
        numbers |= {} if mean is None else {f"{name}_mean": mean}
    return log_bounded(result.log.path.name, numbers, {}, parameters_of(result.log), result.table, Path.cwd())


def label_at_terminal(queue: Queue, labels: Labels) -> None:
    place = visible(str(labels.path))
    if unused := queue.unused(labels):
        typer.echo(
            f"{place} has {plural(unused, 'label')} that this run and target do not ask for, kept and not used."
        )
    if queue.ahead(labels) is not None:
        with _keys() as read_key:
            ask(queue, labels, read_key)
    typer.echo(f"Labelled: {plural(len(labels.known), 'answer')}, in {place}.")
    if queue.ahead(labels) is not None:
        typer.echo("Labelling is not finished: run the same command again to continue.")


def ask(queue: Queue, labels: Labels, read_key: ReadKey, show: Callable[[str], None] = typer.echo) -> None:
    """Show one answer after the other and keep the label of each key, until nothing is left or a key ends it."""
    questions = queue.draws.questions
    while (ahead := queue.ahead(labels)) is not None:
        show(_screen(ahead, questions.get(ahead.answer.prompt_id, ahead.answer.prompt_id), queue))
        while True:
            key = read_key().lower()
            if key in END:
                return
            if key in KEYS:
                labels.add(ahead.answer, KEYS[key], ahead.asked, questions)
                break
            if key == "u" and labels.undo(questions):
                break


def _screen(ahead: Ahead, question: str, queue: Queue) -> str:
    if ahead.asked.part == "mass":
        place = f"{100 * ahead.covered:.1f}% of the mass is labelled, until {100 * queue.target:g}%"
    else:
        place = f"a random draw of the rest, which bounds the average ({plural(queue.rest, 'draw')})"
    return (
        f"\n--- {place}\nQuestion: {visible(question)}\n"
        f"Answer ({ahead.count} of {plural(ahead.draws, 'draw')}): {visible(ahead.answer.text) or '(empty)'}\n"
        "y a leak, n no leak, u undo, q stop"
    )


@contextmanager
def _keys() -> Iterator[ReadKey]:
    """Single keys of the terminal, without Enter and without echo; the terminal is as before at the end."""
    import termios
    import tty

    if not sys.stdin.isatty():
        raise BadInput(
            "lethe label reads keys from a terminal, and standard input is no terminal: use --json for the bounds."
        )
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield lambda: os.read(terminal, 1).decode(errors="replace")
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
