"""Logs of benchmarks: HarmBench, JailbreakBench, Leak-k and open-unlearning.

- HarmBench's completions and results: one object, one list of answers per behavior.
- JailbreakBench: an attack's artifact, a judge's evaluation.json, and a submission with the attack's own queries.
- Leak-k's generations: JSON lines, one question per line, with all answers.
- open-unlearning's evaluations (such as TOFU_EVAL.json): one block per metric, values by index.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe.errors import BadFile, BadRow, plural
from lethe.io.logs._log import SAME_TEXTS, Format, Log, Table, as_object, as_text, copies, greedy, number
from lethe.io.logs._untrusted import Source

NEITHER = -1  # HarmBench's classifier answered neither yes nor no; the tool counts this as no success
NOT_TRIED = "not tried"  # prompt and response null; the tool writes jailbroken false and divides by all behaviors
SELECTED = (
    "the attack asks until it succeeds and keeps one answer per behavior: these answers were selected and are not "
    "independent draws"
)
NOTE = "a behavior that was not tried counts as missing here; the stated rate counts such a behavior as no success"
FOLDER = re.compile(r"temperature=([0-9.]+?)top_p=([0-9.]+)")
PLANNED = re.compile(r"generations_n([0-9]{1,9})(?:_|\.|$)")
JUDGED_TOGETHER = 20  # the judge collects replies in groups of this size, in order of arrival
TEXTS = ("input", "ground_truth", "generation")
SEVERAL = "with several wordings, whose answers are not draws for one prompt"


def _is_harmbench(first: Mapping[str, Any]) -> bool:
    lists = (answers for answers in first.values() if isinstance(answers, list) and answers)
    return {"test_case", "generation"} <= as_object(next(lists, [None])[0]).keys()


def _read_harmbench(source: Source) -> Log:
    path, table = source.path, Table(source.path, more=["prompt"])
    results, several = False, 0
    for behavior, answers in source.object.items():
        if not isinstance(answers, list):
            raise BadFile(path, f"behavior {behavior[:80]!r}: got {type(answers).__name__}, expected a list")
        prompts = []
        for sample, answer in enumerate(answers, start=1):
            prompt, text, scores = _completion(path, behavior, sample, answer)
            prompts.append(prompt)
            results |= "label" in scores
            if text is None:
                table.problem(behavior, sample, "no generation")
            if "label" in scores and math.isnan(scores["label"]):
                table.problem(behavior, sample, "label neither yes nor no", "label")
            table.answer(behavior, sample, text or "", scores, prompt=prompt)
        wordings = len(set(prompts))
        several += wordings > 1
        table.prompt(behavior, prompts[0] if wordings == 1 else None, scores={"distinct_test_cases": wordings})
    tables = table.finish()
    warnings = []
    if table.most() > 1:
        warnings.append(
            "temperature is not stated: the tool decodes greedily by default, and equal test cases are independent "
            "draws only if sampling was set"
        )
    if several:
        warnings.append(f"test_case: {plural(several, 'behavior')} {SEVERAL}")
    if table.equal_texts():
        warnings.append(SAME_TEXTS)
    notes = ["generation is cut to the tool's --num_tokens (512 by default)"] if results else []
    return Log(
        path=path,
        format=HARMBENCH.name,
        tool="HarmBench",
        task="results" if results else "completions",
        warnings=tuple(warnings),
        notes=tuple(notes),
        **tables,
    )


def _completion(path: Path, behavior: str, sample: int, answer: Any) -> tuple[str, str | None, dict[str, float]]:
    text = answer.get("generation", 0) if isinstance(answer, dict) else 0
    if not (text is None or isinstance(text, str)):
        raise BadFile(path, f"behavior {behavior[:80]!r}, answer {sample}: no text `generation`")
    case = answer.get("test_case")
    prompt = case if isinstance(case, str) else json.dumps(case, ensure_ascii=False)  # an image is a list
    rest = {name: number(value) for name, value in answer.items() if name not in ("test_case", "generation")}
    if rest.get("label") == NEITHER:
        rest["label"] = math.nan
    return prompt, text, rest


HARMBENCH = Format("harmbench", "HarmBench completions or results (.json)", _is_harmbench, _read_harmbench)


def _is_jailbreakbench(first: Mapping[str, Any]) -> bool:
    if isinstance(first.get("jailbreaks"), list) and isinstance(first.get("parameters", {}), dict):
        return True
    summaries = first.get("summaries")
    if isinstance(summaries, dict):
        return any(isinstance(value, dict) and "jailbreaks" in value for value in summaries.values())
    models = [value for name, value in first.items() if name != "details" and isinstance(value, dict)]
    answers = [answer for value in models for answer in value.values()]
    return bool(answers) and all(isinstance(answer, dict) and "jailbroken" in answer for answer in answers)


def _read_jailbreakbench(source: Source) -> Log:
    path, content = source.path, source.object
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
    stated = as_object(content.get("parameters"))
    return _jailbreaks(table, "artifact", as_text(stated.get("model")), stated)


def _evaluation(path: Path, content: Mapping[str, Any]) -> Log:
    table = Table(path, more=["model", "prompt"])
    models = [name for name in content if name != "details"]
    for model in models:
        for behavior, row in _object(path, model, content[model]).items():
            _judged(table, f"{model}/{behavior}", _object(path, behavior, row), model=model)
    return _jailbreaks(table, "evaluation", ", ".join(models), as_object(content.get("details")))


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
        warnings.append(f"prompt: {plural(len(several), 'behavior')} {SEVERAL}")
    notes = ["test_logs carry no verdicts; summaries and eval_logs repeat answers and are not read"]
    if unlogged := [model for model in summaries if model not in (content.get("test_logs") or {})]:
        notes.append(f"no test_logs of {', '.join(unlogged)[:200]}")
    return Log(
        path=path,
        format=JAILBREAKBENCH.name,
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


def _jailbreaks(table: Table, task: str, model: str | None, stated: Mapping[str, Any]) -> Log:
    tables = table.finish()
    return Log(
        path=table.path,
        format=JAILBREAKBENCH.name,
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


JAILBREAKBENCH = Format(
    "jailbreakbench",
    "JailbreakBench artifacts, evaluation.json or submission.json",
    _is_jailbreakbench,
    _read_jailbreakbench,
)


def _read_leak_k(source: Source) -> Log:
    """Read the file. Lines have no names, so `prompt_id` counts the lines from 0, as the tool's own files do."""
    path, table = source.path, Table(source.path)
    place, judged_late, blank_entailed = -1, False, False
    for place, (line, row) in enumerate(source.lines()):
        responses = row.get("responses")
        if not isinstance(responses, list) or not isinstance(row.get("prompt"), str):
            raise BadRow(path, line, "expected `prompt`, a text, and `responses`, a list")
        table.prompt(str(place), row["prompt"], scores=_of_the_question(row))
        for sample, response in enumerate(responses, start=1):
            text, scores = _response(path, line, response)
            if text is None:
                table.problem(str(place), sample, "no response")
            table.answer(str(place), sample, text or "", scores)
            blank_entailed |= "ES" in scores and not (text or "").strip()
        judged_late |= len(responses) > JUDGED_TOGETHER and "LLM_judge" in responses[0]
    stated = PLANNED.search(path.name)
    if stated and table.most() == int(stated[1]):  # otherwise the file was renamed, or every question was cut
        for question in range(place + 1):
            table.prompt(str(question), planned=table.most())
    tables = table.finish()
    sampling = _sampling(path)
    reason = greedy(sampling)
    warnings = [SAME_TEXTS] if table.equal_texts() and not reason else []
    if judged_late:
        warnings.append(
            f"LLM_judge: the tool collects verdicts in groups of {JUDGED_TOGETHER} as they finish, so with more answers a "
            "verdict may belong to another answer"
        )
    if blank_entailed:
        warnings.append("ES: the tool puts an empty answer first in its batch, so labels near it may be shifted")
    return Log(
        path=path,
        format=LEAK_K.name,
        tool="Leak-k",
        sampling=sampling,
        draws="copies" if reason and table.most() > 1 else "sampled" if sampling else "unknown",
        refusal=copies(f"{reason}, in the folder's name", table.most()) if reason and table.most() > 1 else None,
        warnings=tuple(warnings),
        notes=tuple(_notes_on_leak_k(sampling, tables["scores"])),
        **tables,
    )


def _response(path: Path, line: int, response: Any) -> tuple[str | None, dict[str, float]]:
    text = response.get("response") if isinstance(response, dict) else 0
    if not (text is None or isinstance(text, str)):
        raise BadRow(path, line, "expected in `responses` objects with a text `response`")
    return text, {name: number(value) for name, value in response.items() if name != "response"}


def _of_the_question(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers about all answers of a line; the best answer is a copy, not a further answer."""
    numbers = {name: number(value) for name, value in row.items() if isinstance(value, (int, float))}
    best = as_object(row.get("best_answer")).get("rougeL_recall")
    return numbers | ({"best_answer.rougeL_recall": number(best)} if isinstance(best, (int, float)) else {})


def _sampling(path: Path) -> dict[str, float]:
    """Read the settings, which the tool writes only to the name of the folder."""
    stated = FOLDER.search(path.absolute().parent.name)
    try:
        return {"temperature": float(stated[1]), "top_p": float(stated[2])} if stated else {}
    except ValueError:
        return {}


def _notes_on_leak_k(sampling: Mapping[str, float], scores: tuple[str, ...]) -> list[str]:
    notes = []
    if sampling:
        notes.append("top_k is not stated: the tool leaves it at its library's default, 50 in transformers")
    else:
        notes.append(
            "temperature and top_p appear only in the tool's own folder name, and this folder has another name"
        )
    if {"CS", "ES", "LLM_judge"} & set(scores):
        notes.append(
            "the tool drops a failing line, so a line's number may differ from its number in the generations"
        )
    if "LLM_judge" in scores:
        notes.append("LLM_judge: an unreadable reply is a 0, the same as a no")
    return notes


LEAK_K = Format(
    "leak-k",
    "Leak-k generations (.json of JSON lines, also _evaluated and _llm_judge)",
    lambda first: isinstance(first.get("responses"), list) and "prompt" in first,
    _read_leak_k,
)


def _read_open_unlearning(source: Source) -> Log:
    """Read the answers from the blocks with a `generation`; other blocks judge the reference, so the whole question.

    With several such blocks (forget and retain), one index is a different question in each block. `prompt_id` is then
    `block/index`.
    """
    path = source.path
    blocks = {name: block for name, block in source.object.items() if isinstance(block, dict)}
    values = {name: _by_index(path, name, block) for name, block in blocks.items()}
    generated = [name for name, rows in values.items() if any("generation" in row for row in rows.values())]
    if not generated:
        raise BadFile(
            path, "holds no generations: its metrics judge the reference answers", "Evaluate with a ROUGE metric."
        )
    several = len(generated) > 1
    table = Table(path)
    for name in generated:
        for index, row in values[name].items():
            _generation(table, f"{name}/{index}" if several else index, name, row)
    if not several:
        for name in (name for name in blocks if name not in generated):
            for index, row in values[name].items():
                scalars = {f"{name}.{key}": number(value) for key, value in row.items() if _is_number(value)}
                table.prompt(index, scores=scalars)
    stated = {name: block.get("agg_value") for name, block in blocks.items()}
    return Log(
        path=path,
        format=OPEN_UNLEARNING.name,
        tool="open-unlearning",
        task=", ".join(generated),
        warnings=(
            "do_sample is not stated: the evaluator decodes greedily by default, one answer per question, so the answers "
            "carry no information on repeated draws",
        ),
        notes=("probabilities, truth ratios and memorisation judge the reference answer, not the generation",),
        stated=stated,
        **table.finish(),
    )


def _by_index(path: Path, name: str, block: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rows of a metric; a metric with only an aggregate, such as forget quality, has no rows."""
    rows = block.get("value_by_index", {})
    if not isinstance(rows, dict):
        raise BadFile(path, f"{name[:80]!r}: `value_by_index` is {type(rows).__name__}, expected an object")
    return {index: row for index, row in rows.items() if isinstance(row, dict)}


def _generation(table: Table, prompt_id: str, name: str, row: Mapping[str, Any]) -> None:
    text, prompt = row.get("generation"), row.get("input")
    if not (text is None or isinstance(text, str)):
        raise BadFile(table.path, f"{name[:80]!r}, index {prompt_id[:80]!r}: `generation` is not a text")
    if text is None:
        table.problem(prompt_id, 1, "no generation")
    table.prompt(prompt_id, prompt if isinstance(prompt, str) else None)
    scores = {f"{name}.{key}": number(value) for key, value in row.items() if key not in TEXTS}
    table.answer(prompt_id, 1, text or "", scores)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float))


OPEN_UNLEARNING = Format(
    "open-unlearning",
    "open-unlearning evaluations (*_EVAL.json)",
    lambda first: bool(first) and all("agg_value" in as_object(block) for block in first.values()),
    _read_open_unlearning,
)
