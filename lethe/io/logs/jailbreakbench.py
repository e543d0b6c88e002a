"""JailbreakBench: an attack's artifact, a judge's evaluation.json, and a submission with the attack's own queries."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lethe.errors import BadFile, plural
from lethe.io.facts import Meaning, named
from lethe.io.files import Json
from lethe.io.logs._json import as_object, as_text, number, object_at, text_at
from lethe.io.logs._log import Format, Log
from lethe.io.logs._table import SEVERAL, Table
from lethe.io.logs._untrusted import JsonFile, checked

# Prompt and response null; JailbreakBench writes jailbroken false and divides by all behaviors.
NOT_TRIED = "not tried"
SELECTED = (
    "the attack asks until it succeeds and keeps one answer per behavior: these answers were selected and are not "
    "independent draws"
)
NOTE = "a behavior that was not tried counts as missing here; the stated rate counts such a behavior as no success"


def _is_jailbreakbench(first: Mapping[str, Json]) -> bool:
    if isinstance(first.get("jailbreaks"), list) and isinstance(first.get("parameters", {}), dict):
        return True
    summaries = first.get("summaries")
    if isinstance(summaries, dict):
        return any("jailbreaks" in as_object(summary) for summary in summaries.values())
    answers: list[Json] = []
    for name, behaviors in first.items():
        if name != "details":
            answers += as_object(behaviors).values()
    return bool(answers) and all("jailbroken" in as_object(answer) for answer in answers)


def _read_jailbreakbench(source: JsonFile) -> Log:
    path = source.path
    content = source.object
    if isinstance(content.get("jailbreaks"), list):
        return _artifact(path, content)
    if "summaries" in content:
        return _submission(path, content)
    return _evaluation(path, content)


def _artifact(path: Path, content: Mapping[str, Json]) -> Log:
    table = Table(path, more=["index", "prompt"])
    for place, row in enumerate(content["jailbreaks"], start=1):
        if not isinstance(row, dict) or not isinstance(row.get("behavior"), str):
            raise BadFile(
                path, f"item {place} of `jailbreaks`: expected an object with a text `behavior`"
            )
        index = row.get("index")
        if isinstance(index, int):  # a text in published artifacts
            index = str(index)
        _judged(table, row["behavior"], row, index=as_text(index))
    stated = object_at(content, "parameters")
    return _jailbreaks(table, "artifact", text_at(stated, "model"), stated)


def _evaluation(path: Path, content: Mapping[str, Json]) -> Log:
    table = Table(path, more=["model", "prompt"])
    models = [name for name in content if name != "details"]
    for model in models:
        for behavior, row in _object(path, model, content[model]).items():
            _judged(table, f"{model}/{behavior}", _object(path, behavior, row), model=model)
    return _jailbreaks(table, "evaluation", ", ".join(models), object_at(content, "details"))


def _submission(path: Path, content: Mapping[str, Json]) -> Log:
    """Read only the attack's own queries: summaries and eval_logs repeat some of the same answers."""
    table = Table(path, more=["model", "prompt"])
    several = 0
    logged = _object(path, "test_logs", content.get("test_logs"))
    for model, behaviors in logged.items():
        for behavior, calls in _object(path, model, behaviors).items():
            prompt_id = f"{model}/{behavior}"
            prompts: list[Json] = []
            for row in _queries(path, behavior, calls):
                prompts.append(row.get("prompt"))
                _answered(
                    table,
                    prompt_id,
                    len(prompts),
                    row,
                    {},
                    model=model,
                )
            if len(set(prompts)) > 1:
                several += 1
            else:
                table.prompt(prompt_id, next(iter(prompts), None))
    summaries = _object(path, "summaries", content["summaries"])
    stated = {}
    for model, summary in summaries.items():
        if isinstance(summary, dict):
            stated[model] = summary.get("model_summary")
    warnings = [
        "test_logs: an attack asks until it succeeds, so the number of its queries depends on the answers"
    ]
    if several:
        warnings.append(f"prompt: {plural(several, 'behavior')} {SEVERAL}")
    notes = ["test_logs carry no verdicts; summaries and eval_logs repeat answers and are not read"]
    unlogged = [model for model in summaries if model not in logged]
    if unlogged:
        notes.append(f"no test_logs of {', '.join(unlogged)[:200]}")
    return table.log(
        "JailbreakBench",
        means=named,
        task="submission",
        model=", ".join(logged),
        stated=stated,
        stopping="early",
        warnings=warnings,
        notes=notes,
    )


def _queries(path: Path, behavior: str, calls: Json) -> list[dict[str, Json]]:
    queries: list[dict[str, Json]] = []
    if not isinstance(calls, list):
        calls = [calls]
    for call in calls:
        if not isinstance(call, list) or len(call) != 2 or not isinstance(call[1], list):
            problem = "expected pairs of a time and a list of queries"
            raise BadFile(path, f"test_logs, {behavior[:80]!r}: {problem}")
        queries += [_object(path, behavior, row) for row in call[1]]
    return queries


def _judged(table: Table, prompt_id: str, row: Mapping[str, Json], **more: object) -> None:
    if row.get("prompt") is None and row.get("response") is None:
        table.prompt(prompt_id, planned=0)
        table.absent(NOT_TRIED)
        return
    verdicts = {}
    for name, value in row.items():
        if name.startswith("jailbroken"):
            verdicts[name] = number(value)
    table.prompt(prompt_id, text_at(row, "prompt"))
    _answered(
        table,
        prompt_id,
        1,
        row,
        verdicts,
        **more,
    )


def _answered(
    table: Table,
    prompt_id: str,
    sample: int,
    row: Mapping[str, Json],
    scores: dict[str, float],
    **more: object,
) -> None:
    prompt = row.get("prompt")
    if prompt is not None:
        checked(table.path, f"{prompt_id[:80]!r}: `prompt`", prompt, str)
    table.answer(
        prompt_id,
        sample,
        row.get("response"),
        scores,
        "no response",
        prompt=prompt,
        **more,
    )


def _jailbreaks(table: Table, task: str, model: str | None, stated: Mapping[str, Json]) -> Log:
    log = table.log(
        "JailbreakBench",
        means=_means_of_jailbreakbench,
        task=task,
        model=model,
        stated=stated,
        draws="selected",
        refusal=SELECTED,
    )
    if NOT_TRIED in log.missing:
        return replace(log, notes=(NOTE,))
    return log


def _means_of_jailbreakbench(score: str) -> Meaning:
    """A judge's verdict `jailbroken` says that the answer gives what was asked for and must not be said."""
    return "leak"


def _object(path: Path, name: str, value: Json) -> dict[str, Json]:
    return checked(path, repr(name[:80]), value)


FORMAT = Format(
    "jailbreakbench",
    "JailbreakBench artifacts, evaluation.json or submission.json",
    _is_jailbreakbench,
    _read_jailbreakbench,
)
