"""Options that only a command line has, and what they do: each function calls the public function and adds to its answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import typer

from lethe.cli.generate import Answer
from lethe.errors import BadFile, BadInput, BadValue

SCRATCH = Path(".lethe/scratch")  # finished questions of `lethe exact`
LARGEST_LEAK = ("m_bin_worst", "anytime_upper_worst")  # of `lethe eval`: n fixed, stopped early
SLOW_STEPS = 100_000
COUNTED = {
    "answers": "n",
    "missing": "missing",
}  # what MLflow lists of all prompts: its name, and the field of a prompt

Given = dict[str, Any]
Call = Callable[..., Any]


def fresh(name: str, path: Path, endings: tuple[str, ...], *inputs: Path) -> Path:
    """Return the path of a file to write: it has one of the endings, and it is none of the inputs."""
    if path.suffix.lower() not in endings or path.is_dir():
        raise BadValue(name, str(path), f"a file that ends in {' or '.join(endings)}")
    for one in inputs:
        if path.exists() and one.exists() and path.samefile(one):
            raise BadValue(name, str(path), f"another file than {one}")
    return path


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
    to : {"inspect", "mlflow"}
        inspect: write each prompt's bound as a record for its precomputed_scores to --out; mlflow: log a run in MLflow.
    out : path
        The .json file of --to inspect. [default: SCORES.bounds.json]
    fail_above : float
        Exit with status 1 unless the bound certifies that every question leaks at most this.
    """
    source = given["scores"]
    _check_gate(fail_above)
    if to != "inspect" and out is not None:
        raise BadValue("out", str(out), "left out unless --to is inspect")
    found = call(**given)
    if to is not None and found.log and found.log.stopped_early:
        raise BadValue("to", to, "left out for a run that stopped early")
    written: dict[str, str] = {}
    if to == "inspect":
        from lethe.evaluation.score_files import bound_records
        from lethe.io.json_files import write_json

        place = fresh("out", out or Path(f"{source.name}.bounds.json"), (".json",), source)
        write_json(place, bound_records(found))
        written = {"inspect": str(place)}
    elif to == "mlflow":
        written = {"mlflow": _bounds_logged(found, source.name)}
    if fail_above is None:
        return Answer(found, written, list(written.values()))
    gate, reason = _gate(found, fail_above)
    return Answer(found, {**written, "gate": gate}, [*written.values(), reason], int(gate["closed"]))


def _gate(found: Any, tau: float) -> tuple[dict[str, Any], str]:
    """Return the key `gate`, and the sentence on whether the bound certifies that every question leaks at most ``tau``."""
    judged = getattr(found, "judged", None)
    if judged and judged.worst is None:
        facts = {"tau": tau, "closed": True, "bound": None, "alpha": judged.alpha, "prompt_id": None}
        sentence = "The gate is closed: the calibration does not fit the verdicts, so no bound exists."
        return {**facts, "reason": sentence}, sentence
    worst = found.worst()
    name, bound = (judged.worst[0], judged.worst[2]) if judged else (worst.prompt_id, worst.bound)
    return _gate_of(name, bound, tau)


def _gate_of(name: str | None, bound: Any, tau: float) -> tuple[dict[str, Any], str]:
    """The gate on the upper bound of the worst question."""
    closed = bound.value > tau
    state, named = "closed: it is not shown" if closed else "open: it is shown", f" ({name})" if name else ""
    sentence = (
        f"The gate is {state} that every question leaks at most {tau:g}; the bound is {bound.significant()}{named}, "
        f"{bound.guarantee('the questions')} ({bound.method})."
    )
    facts = {"tau": tau, "closed": closed, "bound": bound.value, "alpha": bound.alpha, "prompt_id": name}
    return {**facts, "reason": sentence}, sentence


def _gated(found: Any, name: str | None, bound: Any, tau: float | None) -> Answer:
    """An answer with the gate, if one is wanted."""
    if tau is None:
        return Answer(found)
    gate, reason = _gate_of(name, bound, tau)
    return Answer(found, {"gate": gate}, [reason], int(gate["closed"]))


def _check_gate(fail_above: float | None) -> None:
    if fail_above is not None and not 0 <= fail_above < 1:
        raise BadValue("fail_above", fail_above, "a number of at least 0 and below 1")


def _bounds_logged(found: Any, name: str) -> str:
    from lethe.results.table import Numbers
    from lethe.tracking.runs import log_bounded

    counts = {"questions": len(found.prompts)}
    counts |= {name: sum(getattr(one, key) for one in found.prompts) for name, key in COUNTED.items()}
    ends = Numbers([row for row in found.rows() if row.scope == "model"]).bounds
    params = {"alpha": found.settings.alpha, **parameters_of(found.log.log if found.log else None)}
    return log_bounded(name, counts, ends, params, found.to_frame(), Path.cwd())


def parameters_of(log: Any) -> dict[str, object]:
    """What MLflow lists of a log."""
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
    fail_on : {"worse"}
        worse: exit with status 1 where B is worse on some question or on average, wrong with probability at most alpha.
    require : {"not-worse"}
        not-worse: exit with status 1 unless B is proved worse by at most --by on every question of both sides.
    fail_above : float
        Exit with status 1 unless the bound certifies that every question leaks at most this in B.
    page : path
        Also write a page to this .html file.
    """
    if page is not None:
        fresh("page", page, (".html", ".htm"))
    if require and "by" not in given:
        raise BadValue("require", require, "given with --by D, the largest difference that is allowed")
    _check_gate(fail_above)
    found = call(**given, **({"worst": True} if fail_above is not None else {}))
    if page is not None:
        from lethe.io.atomic import write_text
        from lethe.report.pages import comparison_page

        write_text(page, comparison_page(found))
    error, gates = None, {"--fail-on": fail_on, "--require": require, "--fail-above": fail_above}
    named = " ".join(f"{name} {value}" for name, value in gates.items() if value is not None)
    if named and not found.per_question:
        reasons = "; ".join(dict.fromkeys(one.reason for one in found.not_compared))
        error = BadInput(f"{named}: no question could be compared ({reasons}).")
    json: dict[str, Any] = {"page": str(page)} if page else {}
    notes = [f"The page is {page}."] if page else []
    closed = [bool(fail_on) and found.worse]
    if require and found.not_worse is not None:
        absent = [one for one in found.not_compared if one.id is not None]
        closed.append(not found.not_worse.holds or bool(absent))
        if absent:
            notes.append(
                f"--require not-worse: {len(absent)} questions are not compared, so nothing is proved of them."
            )
    if fail_above is not None and found.worst_of_b is not None:
        json["gate"], reason = _gate_of(None, found.worst_of_b, fail_above)
        closed.append(json["gate"]["closed"])
        notes.append(f"B: {reason}")
    return Answer(found, json, notes, int(any(closed)), error)


def certify(call: Call, given: Given, as_json: bool, out: Path = Path("certificate.json")) -> Answer:
    """Write the certificate.

    Parameters
    ----------
    out : path
        The certificate.
    """
    if fresh("out", out, (".json",)).exists():
        raise BadValue("out", str(out), "a new file", "`lethe verify` adds to a certificate.")
    found = call(**given)
    found.write(out)
    note = f"The certificate is {out}; lethe verify {out} --draws 200 adds to it."
    return Answer(found, {"file": str(out)}, [note])


def verify(call: Call, given: Given, as_json: bool, out: Path | None = None) -> Answer:
    """Write the grown certificate.

    Parameters
    ----------
    out : path
        Write here instead of to FILE.
    """
    file = given["file"]
    if out is not None and fresh("out", out, (".json",)).exists() and not (file.exists() and out.samefile(file)):
        raise BadValue("out", str(out), "a new file", "Join two certificates with --add.")
    found = call(**given)
    found.write(out or file)
    notes = [f"The hashes agree: {', '.join(found.hashes)}.", f"The certificate is {out or file}."]
    if given.get("add"):
        notes.append("Only the join of all copies has the level: a copy left out is a draw left out.")
    return Answer(found, {"file": str(out or file)}, notes, int(not all(found.repeated.values())))


def evaluate(call: Call, given: Given, as_json: bool, fail_above: float | None = None) -> Answer:
    """Keep the results in data/eval/NAME, so that an interrupted call resumes there, and gate on them.

    Parameters
    ----------
    fail_above : float
        Exit with status 1 unless the bound certifies that every question leaks at most this.
    """
    _check_gate(fail_above)
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
        found = call(**{**given, "name": name}, folder=folder)
    except KeyboardInterrupt:
        raise Interrupted(folder / "answers") from None
    ends = found.numbers.bounds
    worst = next((ends[key] for key in LARGEST_LEAK if key in ends), None)
    if fail_above is not None and worst is None:
        raise BadInput("--fail-above: this run has no bound of the worst question's leak probability.")
    return _gated(found, None, worst, fail_above)


def sample(call: Call, given: Given, as_json: bool, data: Path | None = None, out: Path | None = None) -> Answer:
    """Ask the questions of a file, and write the answers.

    Parameters
    ----------
    data : path
        Ask the questions of this dataset instead: JSON lines with id, question, answer.
    out : path
        Write the answers to this .parquet or .csv file: `prompt_id, sample, text, tokens, finish_reason, mean_confidence`.
    """
    from lethe.data.rows import read_rows
    from lethe.io.tables import write_csv, write_parquet

    if (data is None) == ("prompts" not in given):
        raise BadInput("lethe sample: give PROMPTS, or the questions of a file with --data, and not both.")
    if out is not None:
        fresh("out", out, (".parquet", ".csv"), *([data] if data else []))
    if data is not None:
        given["prompts"] = {row["id"]: row["question"] for row in read_rows(data)}
    found = call(**given)
    if out is None:
        return Answer(found)
    (write_csv if out.suffix.lower() == ".csv" else write_parquet)(out, found.to_frame())
    return Answer(found, {"file": str(out)}, [f"The answers are in {out}."])


def exact(call: Call, given: Given, as_json: bool, fail_above: float | None = None) -> Answer:
    """Keep finished questions, so that an interrupted call resumes, and gate on them.

    Parameters
    ----------
    fail_above : float
        Exit with status 1 unless the bounds certify that every question leaks at most this.
    """
    _check_gate(fail_above)
    found = call(**given, scratch=SCRATCH)
    worst = max(found.certificates.trees, key=lambda tree: tree.bounds["upper"].value)
    return _gated(found, worst.id, worst.bounds["upper"], fail_above)


def extract(call: Call, given: Given, as_json: bool, page: Path | None = None) -> Answer:
    """Keep finished windows, so that an interrupted call resumes, and write a page.

    Parameters
    ----------
    page : path
        Also write the text as a strip of colour, with its passages, to this .html file; a .png beside it has the strip.
    """
    if page is not None:
        fresh("page", page, (".html", ".htm"), given["text"])
    found = call(**given, scratch=SCRATCH)
    if page is None:
        return Answer(found)
    from lethe.report.pages import write_extraction

    written = [
        str(each)
        for each in write_extraction(page, (found.found, *found.references), found.headline(), found.sentences())
    ]
    return Answer(
        found, {"page": written[0], "picture": written[1]}, [f"The page is {written[0]}, its strip {written[1]}."]
    )


def one_run(call: Call, given: Given, as_json: bool) -> Answer:
    """Say beforehand that an audit takes long."""
    if given.get("steps", 0) >= SLOW_STEPS:
        typer.echo(f"dp-sgd over {given['steps']:,} steps takes up to a minute.", err=True)
    return Answer(call(**given))


def label(call: Call, given: Given, as_json: bool) -> Answer:
    """Ask a person at the terminal, unless JSON is wanted."""
    labels = given.get("labels")
    if as_json and labels is not None and not labels.is_file():
        raise BadFile(labels, "is no file", "Label first (without --json), or name the file of labels.")
    if as_json:
        return Answer(call(**given))
    from lethe.cli.keys import label_at_terminal

    return Answer(call(**given, ask=label_at_terminal))


def log(call: Call, given: Given, as_json: bool, table: Path | None = None) -> Answer:
    """Write the answers of a log.

    Parameters
    ----------
    table : path
        Write the answers with their scores to this .csv file: `prompt_id, sample, text` and one column per score. An
        unscored answer has an empty cell. A text that a spreadsheet would compute (`=1+2`) begins with an apostrophe, and a
        control character becomes an escape.
    """
    from lethe.io.tables import write_csv

    if table is None:
        return Answer(call(**given))
    fresh("table", table, (".csv",), given["file"])
    found = call(**given)
    write_csv(table, found.answers)
    return Answer(found, notes=[f"The answers are in {table}."])


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
    table : path
        A .csv or .parquet file; a .json file with --to inspect. [default: LOG.scores.parquet or .json, here]
    to : {"table", "inspect", "mlflow"}
        table; inspect: records for its precomputed_scores; mlflow: the table, and a run in MLflow with the means.
    """
    endings = (".json",) if to == "inspect" else (".parquet", ".csv")
    out = table or Path(f"{given['log'].name}.scores{endings[0]}")
    fresh("table", out, endings, given["log"], given["data"])
    found = call(**given)
    _write_scores(found, out)
    run = _logged(found) if to == "mlflow" else None
    place = (
        f"The records are in {out}: inspect score {given['log']} --scorer precomputed_scores -S scores={out}"
        if to == "inspect"
        else f"The scores are in {out}: lethe bounds {out} --score {found.scorers[0]} --missing worst"
    )
    return Answer(found, {"table": str(out), "mlflow": run}, [place, *([run] if run else [])])


def _write_scores(found: Any, out: Path) -> None:
    from lethe.evaluation.score_files import score_records
    from lethe.io.json_files import write_json
    from lethe.io.tables import write_csv, write_parquet

    if out.suffix.lower() == ".json":
        write_json(out, score_records(found))
    else:
        (write_csv if out.suffix.lower() == ".csv" else write_parquet)(out, found.table)


def _logged(found: Any) -> str:
    from lethe.tracking.runs import log_bounded

    numbers: dict[str, float] = {}
    for name, scored, missing, mean in found.rows():
        numbers |= {f"{name}_scored": scored, f"{name}_missing": missing}
        numbers |= {} if mean is None else {f"{name}_mean": mean}
    return log_bounded(found.log.path.name, numbers, {}, parameters_of(found.log), found.table, Path.cwd())
