"""JailbreakBench: an attack's artifact, a judge's evaluation.json, and a submission with the attack's own queries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe.errors import BadFile, plural
from lethe.io.logs._json import document
from lethe.io.logs._log import Log, Table, as_text, number

NAME = "jailbreakbench"
HOLDS = "JailbreakBench artifacts, evaluation.json or submission.json"
NOT_TRIED = "not tried"  # prompt and response null; the tool writes jailbroken false and divides by all behaviors
SELECTED = (
    "the attack asks until it succeeds and keeps one answer per behavior: these answers were selected and are not "
    "independent draws"
)
NOTE = "a behavior that was not tried counts as missing here; the stated rate counts such a behavior as no success"


def recognises(first: Mapping[str, object]) -> bool:
    """Whether the first members of a file identify this format."""
    if isinstance(first.get("jailbreaks"), list) and isinstance(first.get("parameters", {}), dict):
        return True
    summaries = first.get("summaries")
    if isinstance(summaries, dict):
        return any(isinstance(value, dict) and "jailbreaks" in value for value in summaries.values())
    models = [value for name, value in first.items() if name != "details" and isinstance(value, dict)]
    answers = [answer for value in models for answer in value.values()]
    return bool(answers) and all(isinstance(answer, dict) and "jailbroken" in answer for answer in answers)


def read(path: Path) -> Log:
    """Read a JailbreakBench artifact, evaluation or submission."""
    content = dict(document(path).members())
    if isinstance(content.get("jailbreaks"), list):
        return _artifact(path, content)
    if "summaries" in content:
        return _submission(path, content)
    return _evaluation(path, content)


def _artifact(path: Path, content: Mapping[str, Any]) -> Log:
    table = Table(path, more=["index", "prompt"])
    for place, row in enumerate(content["jailbreaks"], start=1):
        if not isinstance(row, dict) or not isinstance(row.get("behavior"), str):
            raise BadFile(path, f"item {place} of `jailbreaks`: expected an object with a text `behavior`")
        index = row.get("index")  # a text in published artifacts
        _judged(table, row["behavior"], row, index=str(index) if isinstance(index, (int, str)) else None)
    parameters = content.get("parameters")
    stated = parameters if isinstance(parameters, dict) else {}
    return _log(path, table, "artifact", as_text(stated.get("model")), stated)


def _evaluation(path: Path, content: Mapping[str, Any]) -> Log:
    table = Table(path, more=["model", "prompt"])
    models = [name for name in content if name != "details"]
    for model in models:
        for behavior, row in _object(path, model, content[model]).items():
            _judged(table, f"{model}/{behavior}", _object(path, behavior, row), model=model)
    details = content.get("details")
    return _log(path, table, "evaluation", ", ".join(models), details if isinstance(details, dict) else {})


def _submission(path: Path, content: Mapping[str, Any]) -> Log:
    """Read only the attack's own queries: summaries and eval_logs repeat some of the same answers."""
    table = Table(path, more=["model", "prompt"])
    several: set[str] = set()
    for model, behaviors in _object(path, "test_logs", content.get("test_logs")).items():
        for behavior, calls in _object(path, model, behaviors).items():
            prompt_id, prompts = f"{model}/{behavior}", []
            for row in _queries(path, behavior, calls):
                prompts.append(row.get("prompt"))
                _answered(table, prompt_id, len(prompts), row, {}, model=model)
            if len(set(prompts)) > 1:
                several.add(prompt_id)
            else:
                table.prompt(prompt_id, prompts[0] if prompts else None)
    summaries = _object(path, "summaries", content["summaries"])
    stated = {model: value.get("model_summary") for model, value in summaries.items() if isinstance(value, dict)}
    warnings = ["test_logs: an attack asks until it succeeds, so the number of its queries depends on the answers"]
    if several:
        warnings.append(
            f"prompt: {plural(len(several), 'behavior')} with several wordings, whose answers are not draws for one prompt"
        )
    notes = ["test_logs carry no verdicts; summaries and eval_logs repeat answers and are not read"]
    if unlogged := [model for model in summaries if model not in (content.get("test_logs") or {})]:
        notes.append(f"no test_logs of {', '.join(unlogged)[:200]}")
    return Log(
        path=path,
        format=NAME,
        tool="JailbreakBench",
        task="submission",
        model=", ".join(content["test_logs"]),
        stopping="early",
        warnings=tuple(warnings),
        notes=tuple(notes),
        stated=stated,
        **table.finish(),
    )


def _queries(path: Path, behavior: str, calls: Any) -> list[dict[str, Any]]:
    """Join a behavior's calls, each [{timestamp}, [query, ...]], into one list of queries."""
    queries: list[dict[str, Any]] = []
    for call in calls if isinstance(calls, list) else [calls]:
        if not isinstance(call, list) or len(call) != 2 or not isinstance(call[1], list):
            raise BadFile(path, f"test_logs, {behavior[:80]!r}: expected pairs of a time and a list of queries")
        queries += [_object(path, behavior, row) for row in call[1]]
    return queries


def _judged(table: Table, prompt_id: str, row: Mapping[str, Any], **more: Any) -> None:
    verdicts = {name: number(value) for name, value in row.items() if name.startswith("jailbroken")}
    if row.get("prompt") is None and row.get("response") is None:
        table.prompt(prompt_id, planned=0)
        table.absent(NOT_TRIED)
        return
    table.prompt(prompt_id, row.get("prompt") if isinstance(row.get("prompt"), str) else None)
    _answered(table, prompt_id, 1, row, verdicts, **more)


def _answered(
    table: Table, prompt_id: str, sample: int, row: Mapping[str, Any], scores: dict[str, float], **more: Any
) -> None:
    prompt, text = row.get("prompt"), row.get("response")
    for name, value in (("prompt", prompt), ("response", text)):
        if not (value is None or isinstance(value, str)):
            raise BadFile(table.path, f"{prompt_id[:80]!r}: `{name}` is {type(value).__name__}, expected a text")
    if text is None:
        table.problem(prompt_id, sample, "no response")
    table.answer(prompt_id, sample, text or "", scores, prompt=prompt, **more)


def _log(path: Path, table: Table, task: str, model: str | None, stated: Mapping[str, Any]) -> Log:
    tables = table.finish()
    return Log(
        path=path,
        format=NAME,
        tool="JailbreakBench",
        task=task,
        model=model,
        draws="selected",
        refusal=SELECTED,
        notes=(NOTE,) if NOT_TRIED in tables["missing"] else (),
        stated=stated,
        **tables,
    )


def _object(path: Path, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadFile(path, f"{name[:80]!r} is {type(value).__name__}, expected an object")
    return value
