"""Logs of benchmarks: HarmBench, JailbreakBench, Leak-k, open-unlearning and HELM.

- HarmBench's completions and results: one object, one list of answers per behavior.
- JailbreakBench: an attack's artifact, a judge's evaluation.json, and a submission with the attack's own queries.
- Leak-k's generations: JSON lines, one question per line, with all answers.
- open-unlearning's evaluations (such as TOFU_EVAL.json): one block per metric, values by index.
- HELM's scenario_state.json, with the scores of the per_instance_stats.json beside it.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lethe.errors import BadFile, BadRow, plural
from lethe.io.answer_ends import missing_kind
from lethe.io.facts import Meaning, named
from lethe.io.files import Json
from lethe.io.logs._log import (
    Format,
    Log,
    Table,
    as_list,
    as_object,
    as_text,
    greedy,
    number,
)
from lethe.io.logs._untrusted import Source, checked

NEITHER = (
    -1
)  # HarmBench's classifier answered neither yes nor no; the tool counts this as no success
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
ABSENT = 0  # in place of a text that a file must have: no text, and not null
STATISTICS = "per_instance_stats.json"
BOOKKEEPING = re.compile(
    r"num_|train|inference_|batch_size|finish_reason_|prompt_truncated|max_prob|logprob|predicted_index"
)
SEVERAL = "with several wordings, whose answers are not draws for one prompt"


def _is_harmbench(first: Mapping[str, Json]) -> bool:
    lists = (answers for answers in first.values() if isinstance(answers, list) and answers)
    return {"test_case", "generation"} <= as_object(next(lists, [None])[0]).keys()


def _read_harmbench(source: Source) -> Log:
    path, table = source.path, Table(source.path, more=["prompt"])
    results, several = False, 0
    for behavior, answers in source.object.items():
        if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
            raise BadFile(path, f"behavior {behavior[:80]!r}: expected a list of objects")
        cases = [answer.get("test_case") for answer in answers]  # an image is a list
        prompts = [
            case if isinstance(case, str) else json.dumps(case, ensure_ascii=False)
            for case in cases
        ]
        for sample, (prompt, answer) in enumerate(zip(prompts, answers, strict=True), start=1):
            scores = {
                key: number(value)
                for key, value in answer.items()
                if key not in ("test_case", "generation")
            }
            if scores.get("label") == NEITHER:
                scores["label"] = math.nan
            results |= "label" in scores
            if math.isnan(scores.get("label", 0)):
                table.problem(behavior, sample, "label neither yes nor no", "label")
            table.answer(behavior, sample, answer.get("generation", ABSENT), scores, prompt=prompt)
        wordings = len(set(prompts))
        several += wordings > 1
        table.prompt(
            behavior,
            prompts[0] if wordings == 1 else None,
            scores={"distinct_test_cases": wordings},
        )
    warnings = []
    if table.most() > 1:
        warnings.append(
            "temperature is not stated: the tool decodes greedily by default, and equal test cases are independent "
            "draws only if sampling was set"
        )
    if several:
        warnings.append(f"test_case: {plural(several, 'behavior')} {SEVERAL}")
    notes = ["generation is cut to the tool's --num_tokens (512 by default)"] if results else []
    return table.log(
        "HarmBench",
        means=_means_of_harmbench,
        task="results" if results else "completions",
        warnings=warnings,
        notes=notes,
    )


def _means_of_harmbench(score: str) -> Meaning:
    """The classifier's label says that the answer is the behaviour; that a phrase of refusal is absent says less."""
    return "leak" if score == "label" else named(score)


HARMBENCH = Format(
    "harmbench", "HarmBench completions or results (.json)", _is_harmbench, _read_harmbench
)


def _is_jailbreakbench(first: Mapping[str, Json]) -> bool:
    if isinstance(first.get("jailbreaks"), list) and isinstance(first.get("parameters", {}), dict):
        return True
    summaries = first.get("summaries")
    if isinstance(summaries, dict):
        return any(
            isinstance(value, dict) and "jailbreaks" in value for value in summaries.values()
        )
    models = [
        value for name, value in first.items() if name != "details" and isinstance(value, dict)
    ]
    answers = [answer for value in models for answer in value.values()]
    return bool(answers) and all(
        isinstance(answer, dict) and "jailbroken" in answer for answer in answers
    )


def _read_jailbreakbench(source: Source) -> Log:
    path, content = source.path, source.object
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
        index = row.get("index")  # a text in published artifacts
        _judged(
            table, row["behavior"], row, index=str(index) if isinstance(index, (int, str)) else None
        )
    stated = as_object(content.get("parameters"))
    return _jailbreaks(table, "artifact", as_text(stated.get("model")), stated)


def _evaluation(path: Path, content: Mapping[str, Json]) -> Log:
    table = Table(path, more=["model", "prompt"])
    models = [name for name in content if name != "details"]
    for model in models:
        for behavior, row in _object(path, model, content[model]).items():
            _judged(table, f"{model}/{behavior}", _object(path, behavior, row), model=model)
    return _jailbreaks(table, "evaluation", ", ".join(models), as_object(content.get("details")))


def _submission(path: Path, content: Mapping[str, Json]) -> Log:
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
    stated = {
        model: value.get("model_summary")
        for model, value in summaries.items()
        if isinstance(value, dict)
    }
    warnings = [
        "test_logs: an attack asks until it succeeds, so the number of its queries depends on the answers"
    ]
    if several:
        warnings.append(f"prompt: {plural(len(several), 'behavior')} {SEVERAL}")
    notes = ["test_logs carry no verdicts; summaries and eval_logs repeat answers and are not read"]
    if unlogged := [model for model in summaries if model not in (content.get("test_logs") or {})]:
        notes.append(f"no test_logs of {', '.join(unlogged)[:200]}")
    model = ", ".join(content["test_logs"])
    about: dict[str, Json] = {
        "task": "submission",
        "model": model,
        "stated": stated,
        "stopping": "early",
    }
    return table.log("JailbreakBench", means=named, warnings=warnings, notes=notes, **about)


def _queries(path: Path, behavior: str, calls: Json) -> list[dict[str, Json]]:
    queries: list[dict[str, Json]] = []
    for call in calls if isinstance(calls, list) else [calls]:
        if not isinstance(call, list) or len(call) != 2 or not isinstance(call[1], list):
            raise BadFile(
                path,
                f"test_logs, {behavior[:80]!r}: expected pairs of a time and a list of queries",
            )
        queries += [_object(path, behavior, row) for row in call[1]]
    return queries


def _judged(table: Table, prompt_id: str, row: Mapping[str, Json], **more: object) -> None:
    verdicts = {name: number(value) for name, value in row.items() if name.startswith("jailbroken")}
    if row.get("prompt") is None and row.get("response") is None:
        table.prompt(prompt_id, planned=0)
        table.absent(NOT_TRIED)
        return
    table.prompt(prompt_id, as_text(row.get("prompt")))
    _answered(table, prompt_id, 1, row, verdicts, **more)


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
        prompt_id, sample, row.get("response"), scores, "no response", prompt=prompt, **more
    )


def _jailbreaks(table: Table, task: str, model: str | None, stated: Mapping[str, Json]) -> Log:
    about: dict[str, Json] = {"task": task, "model": model, "stated": stated}
    means = _means_of_jailbreakbench
    log = table.log("JailbreakBench", means=means, draws="selected", refusal=SELECTED, **about)
    return replace(log, notes=(NOTE,) if NOT_TRIED in log.missing else ())


def _means_of_jailbreakbench(score: str) -> Meaning:
    """A judge's verdict `jailbroken` says that the answer gives what was asked for and must not be said."""
    return "leak"


def _object(path: Path, name: str, value: Json) -> dict[str, Json]:
    return checked(path, repr(name[:80]), value)


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
        objects = isinstance(responses, list) and all(
            isinstance(response, dict) for response in responses
        )
        if not objects or not isinstance(row.get("prompt"), str):
            raise BadRow(
                path, line, "expected `prompt`, a text, and `responses`, a list of objects"
            )
        table.prompt(str(place), row["prompt"], scores=_of_the_question(row))
        for sample, response in enumerate(row["responses"], start=1):
            text = response.pop("response", None)
            if not (text is None or isinstance(text, str)):
                raise BadRow(path, line, "expected in `responses` objects with a text `response`")
            scores = {name: number(value) for name, value in response.items()}
            table.answer(str(place), sample, text, scores, "no response")
            blank_entailed |= "ES" in scores and not (text or "").strip()
        judged_late |= (
            len(row["responses"]) > JUDGED_TOGETHER and "LLM_judge" in row["responses"][0]
        )
    stated = PLANNED.search(path.name)
    if stated and table.most() == int(
        stated[1]
    ):  # otherwise the file was renamed, or every question was cut
        for question in range(place + 1):
            table.prompt(str(question), planned=table.most())
    sampling, warnings = _sampling(path), []
    if judged_late:
        warnings.append(
            f"LLM_judge: the tool collects verdicts in groups of {JUDGED_TOGETHER} as they finish, so with more answers a "
            "verdict may belong to another answer"
        )
    if blank_entailed:
        warnings.append(
            "ES: the tool puts an empty answer first in its batch, so labels near it may be shifted"
        )
    setting = greedy(sampling)
    log = table.log(
        "Leak-k",
        means=_means_of_leak_k,
        sampling=sampling,
        greedy_by=f"{setting}, in the folder's name" if setting else None,
        draws="sampled" if sampling else "unknown",
        warnings=warnings,
    )
    return replace(log, notes=tuple(_notes_on_leak_k(sampling, log.scores)))


def _means_of_leak_k(score: str) -> Meaning:
    """The tool asks the questions of a forget set, and each of its scores says how much of the answer was given."""
    return "leak"


def _of_the_question(row: Mapping[str, Json]) -> dict[str, float]:
    numbers = {
        name: number(value) for name, value in row.items() if isinstance(value, (int, float))
    }
    best = as_object(row.get("best_answer")).get("rougeL_recall")
    return numbers | (
        {"best_answer.rougeL_recall": number(best)} if isinstance(best, (int, float)) else {}
    )


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
        notes.append(
            "top_k is not stated: the tool leaves it at its library's default, 50 in transformers"
        )
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
    """Read the blocks with a `generation`; with several, one index is a different question in each."""
    path = source.path
    blocks = {name: block for name, block in source.object.items() if isinstance(block, dict)}
    values = {name: _by_index(path, name, block) for name, block in blocks.items()}
    generated = [
        name for name, rows in values.items() if any("generation" in row for row in rows.values())
    ]
    if not generated:
        problem = "holds no generations: its metrics judge the reference answers"
        raise BadFile(path, problem, "Evaluate with a ROUGE metric.")
    several = len(generated) > 1
    table = Table(path)
    for name in generated:
        for index, row in values[name].items():
            prompt_id = f"{name}/{index}" if several else index
            scores = {
                f"{name}.{key}": number(value) for key, value in row.items() if key not in TEXTS
            }
            table.prompt(prompt_id, as_text(row.get("input")))
            table.answer(prompt_id, 1, row.get("generation"), scores)
    for name in [] if several else [name for name in blocks if name not in generated]:
        for index, row in values[name].items():
            plain = {
                key: value
                for key, value in row.items()
                if isinstance(value, (bool, int, float, type(None)))
            }
            table.prompt(
                index, scores={f"{name}.{key}": number(value) for key, value in plain.items()}
            )
    return table.log(
        "open-unlearning",
        means=_means_of_open_unlearning,
        task=", ".join(generated),
        warnings=(
            "do_sample is not stated: the evaluator decodes greedily by default, one answer per question, so the answers "
            "carry no information on repeated draws",
        ),
        notes=(
            "probabilities, truth ratios and memorisation judge the reference answer, not the generation",
        ),
        stated={name: block.get("agg_value") for name, block in blocks.items()},
    )


def _means_of_open_unlearning(score: str) -> Meaning:
    """A score of the forget set says how much of a forgotten answer was given; of other sets, that the model still knows."""
    return "leak" if score.startswith("forget") else "match"


def _by_index(path: Path, name: str, block: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """Return the rows of a metric; a metric with only an aggregate, such as forget quality, has no rows."""
    rows = checked(path, f"{name[:80]!r}: `value_by_index`", block.get("value_by_index", {}))
    return {index: row for index, row in rows.items() if isinstance(row, dict)}


OPEN_UNLEARNING = Format(
    "open-unlearning",
    "open-unlearning evaluations (*_EVAL.json)",
    lambda first: bool(first) and all("agg_value" in as_object(block) for block in first.values()),
    _read_open_unlearning,
)


def _read_helm(source: Source) -> Log:
    """Read the completions. Other few-shot examples (a trial) or a perturbation make another prompt."""
    path, table = source.path, Table(source.path)
    spec, cached, requested = as_object(source.object.get("adapter_spec")), 0, None
    beside = path.with_name(STATISTICS)
    statistics = _statistics_of(beside) if beside.is_file() else {}
    for place, state in enumerate(as_list(source.object.get("request_states")), start=1):
        instance, request, result = (
            as_object(as_object(state).get(key)) for key in ("instance", "request", "result")
        )
        if not isinstance(instance.get("id"), str):
            raise BadFile(
                path,
                f"request state {place}: expected an object with an `instance` that has an `id`",
            )
        if state.get("reference_index") is not None:
            problem = "its requests rate given choices; no answer was drawn"
            raise BadFile(path, problem, "Use the method generation.")
        name, completions = _name_of(state), as_list(result.get("completions"))
        cached += result.get("cached") is True
        if requested is None:
            requested = request.get("temperature")
        scores, planned = statistics.get(name, {}), request.get("num_completions")
        if isinstance(planned, int):
            completions += [None] * (planned - len(completions))
        several = len(completions) > 1  # then a statistic is about all completions
        table.prompt(name, as_text(request.get("prompt")), scores=scores if several else {})
        for sample, completion in enumerate(completions or [None], start=1):
            text = as_text(as_object(completion).get("text"))
            if result.get("success") is False:
                table.problem(name, sample, "error")
                text = text or ""
            elif kind := missing_kind(_reason_of(completion)):
                table.problem(name, sample, kind)
            table.answer(name, sample, text, {} if several else scores, "no completion")
    settings = ("temperature", "num_outputs", "max_tokens")
    sampling = {key: spec[key] for key in settings if spec.get(key) is not None}
    if requested is not None:
        sampling.setdefault("temperature", requested)
    warnings, repeats = [], None
    notes = [] if beside.is_file() else [f"no {STATISTICS} beside it: the answers have no scores"]
    if cached:
        repeats = f"cached: true in {plural(cached, 'request')}"
        warnings.append(f"{repeats}: these answers come from an earlier run")
    if table.most() > 1:
        notes.insert(
            0, "a statistic of several completions belongs to the prompt, not to an answer"
        )
    return table.log(
        "HELM",
        task=as_text(spec.get("method")),
        model=as_text(spec.get("model")),
        sampling=sampling,
        means=_means_of_helm,
        repeats=repeats and f"The log says {repeats}, whose answers come from an earlier run",
        warnings=warnings,
        notes=notes,
    )


def _means_of_helm(score: str) -> Meaning:
    """HELM compares with references, which may be what must be said or what must not."""
    meaning = named(score)
    return "match" if meaning == "unknown" else meaning


def _name_of(entry: Mapping[str, Json]) -> str:
    instance, trial = as_object(entry.get("instance")), entry.get("train_trial_index")
    changed = as_object(entry.get("perturbation", instance.get("perturbation"))).get("name")
    parts = [entry.get("instance_id", instance.get("id")), changed, trial if trial else None]
    return "/".join(str(part) for part in parts if part is not None)


def _statistics_of(path: Path) -> dict[str, dict[str, float]]:
    named: dict[str, dict[str, float]] = {}
    for entry in map(as_object, as_list(Source(path).document)):
        for one in map(as_object, as_list(entry.get("stats"))):
            name = as_text(as_object(one.get("name")).get("name"))
            if name and not BOOKKEEPING.match(name) and one.get("count"):
                named.setdefault(_name_of(entry), {})[name] = number(one.get("mean"))
    return named


HELM = Format(
    "helm",
    "HELM runs (scenario_state.json, with the per_instance_stats.json beside it)",
    lambda first: "adapter_spec" in first and "request_states" in first,
    _read_helm,
)


def _reason_of(completion: Json) -> Json:
    """Why HELM says that a completion ended, None where it does not: {"reason": WORD}, or the word of a client alone."""
    stated = as_object(completion).get("finish_reason")
    return stated.get("reason") if isinstance(stated, dict) else stated
