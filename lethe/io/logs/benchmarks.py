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
    list_at,
    number,
    object_at,
    objects_at,
    text_at,
)
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._untrusted import JsonFile, checked
from lethe.io.logs.responses import is_score

# HarmBench's classifier answered neither yes nor no; the tool counts this as no success.
NEITHER = -1
# Prompt and response null; JailbreakBench writes jailbroken false and divides by all behaviors.
NOT_TRIED = "not tried"
SELECTED = (
    "the attack asks until it succeeds and keeps one answer per behavior: these answers were selected and are not "
    "independent draws"
)
NOTE = "a behavior that was not tried counts as missing here; the stated rate counts such a behavior as no success"
FOLDER = re.compile(r"temperature=([0-9.]+?)top_p=([0-9.]+)")
PLANNED = re.compile(r"generations_n([0-9]{1,9})(?:_|\.|$)")
JUDGED_TOGETHER = 20  # the judge collects replies in groups of this size, in order of arrival
ROUGE_RECALL = "rougeL_recall"  # the score that Leak-k writes beside every answer
SCORES_OF_LEAK_K = (ROUGE_RECALL, "exact_match", "CS", "ES", "LLM_judge")
TEXTS = ("input", "ground_truth", "generation")
ABSENT = 0  # in place of a text that a file must have: no text, and not null
STATISTICS = "per_instance_stats.json"
BOOKKEEPING = re.compile(
    r"num_|train|inference_|batch_size|finish_reason_|prompt_truncated|max_prob|logprob|predicted_index"
)
Rows = dict[str, dict[str, Json]]  # of a metric of open-unlearning, by index
SEVERAL = "with several wordings, whose answers are not draws for one prompt"


def _is_harmbench(first: Mapping[str, Json]) -> bool:
    for answers in first.values():
        if isinstance(answers, list) and answers:
            return {"test_case", "generation"} <= as_object(answers[0]).keys()
    return False


def _read_harmbench(source: JsonFile) -> Log:
    table = Table(source.path, more=["prompt"])
    settings = RequestSettings()
    judged = False
    several = 0
    for behavior, answers in source.object.items():
        if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
            raise BadFile(source.path, f"behavior {behavior[:80]!r}: expected a list of objects")
        settings.add_answers({}, answers)
        prompts = [_wording(answer.get("test_case")) for answer in answers]
        for sample, (prompt, answer) in enumerate(zip(prompts, answers, strict=True), start=1):
            text = answer.pop("generation", ABSENT)
            _note_end(table, behavior, sample, answer)
            answer.pop("test_case", None)
            scores = _scores_beside(answer)
            if scores.get("label") == NEITHER:
                scores["label"] = math.nan
            judged |= "label" in scores
            if math.isnan(scores.get("label", 0)):
                table.problem(behavior, sample, "label neither yes nor no", "label")
            table.answer(behavior, sample, text, scores, prompt=prompt)
        wordings = len(set(prompts))
        several += wordings > 1
        wording = prompts[0] if wordings == 1 else None
        table.prompt(behavior, wording, scores={"distinct_test_cases": wordings})
    warnings = []
    if table.most() > 1 and not settings.values:
        warnings.append(
            "temperature is not stated: the tool decodes greedily by default, and equal test cases are independent "
            "draws only if sampling was set"
        )
    if several:
        warnings.append(f"test_case: {plural(several, 'behavior')} {SEVERAL}")
    task = "completions"
    notes = []
    if judged:
        task = "results"
        notes.append("generation is cut to the tool's --num_tokens (512 by default)")
    return table.log(
        "HarmBench",
        means=_means_of_harmbench,
        task=task,
        **settings.of_log(warnings),
        notes=notes,
    )


def _scores_beside(answer: Mapping[str, Json]) -> dict[str, float]:
    """The scores in an answer: its numbers, NaN for a null, without what states its place or its sampling."""
    scores = {}
    for name, value in answer.items():
        if is_score(name) and (value is None or isinstance(value, (int, float))):
            scores[name] = number(value)
    return scores


def _wording(case: Json) -> str:
    """Return a test case as text; an image is a list."""
    if isinstance(case, str):
        return case
    return json.dumps(case, ensure_ascii=False)


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


JAILBREAKBENCH = Format(
    "jailbreakbench",
    "JailbreakBench artifacts, evaluation.json or submission.json",
    _is_jailbreakbench,
    _read_jailbreakbench,
)


def _is_leak_k(first: Mapping[str, Json]) -> bool:
    """Whether an object has answers as Leak-k writes them: objects, each with its ROUGE-L recall."""
    responses = first.get("responses")
    if not isinstance(responses, list) or "prompt" not in first:
        return False
    scored = [response for response in map(as_object, responses) if ROUGE_RECALL in response]
    return len(responses) == 0 or bool(scored)


def _read_leak_k(source: JsonFile) -> Log:
    """Read the file. Lines have no names, so `prompt_id` counts the lines from 0, as the tool's own files do."""
    path = source.path
    table = Table(path)
    questions: list[str] = []
    settings = RequestSettings()
    judged_late = blank_entailed = False
    for line, row in source.lines():
        responses = row.get("responses")
        objects = isinstance(responses, list) and all(isinstance(item, dict) for item in responses)
        if not objects or not isinstance(row.get("prompt"), str):
            problem = "expected `prompt`, a text, and `responses`, a list of objects"
            raise BadRow(path, line, problem)
        question = str(len(questions))
        questions.append(question)
        table.prompt(question, row["prompt"], scores=_of_the_question(row))
        settings.add_answers(row, row["responses"])
        for sample, response in enumerate(row["responses"], start=1):
            text = response.pop("response", None)
            if text is not None and not isinstance(text, str):
                raise BadRow(path, line, "expected in `responses` objects with a text `response`")
            scores = _scores_beside(response)
            _note_end(table, question, sample, response)
            table.answer(question, sample, text, scores, "no response")
            if "ES" in scores and not (text or "").strip():
                blank_entailed = True
        if len(row["responses"]) > JUDGED_TOGETHER and "LLM_judge" in row["responses"][0]:
            judged_late = True
    planned = PLANNED.search(path.name)
    most = table.most()
    if planned and int(planned[1]) == most:  # else the file was renamed, or every question was cut
        for question in questions:
            table.prompt(question, planned=most)
    warnings = []
    if judged_late:
        warnings.append(
            f"LLM_judge: the tool collects verdicts in groups of {JUDGED_TOGETHER} as they finish, so with more answers a "
            "verdict may belong to another answer"
        )
    if blank_entailed:
        warnings.append(
            "ES: the tool puts an empty answer first in its batch, so labels near it may be shifted"
        )
    of_folder = _sampling(path)
    greedy_by = greedy(of_folder)
    if greedy_by:
        greedy_by += ", in the folder's name"
    sampling = {**of_folder, **settings.sampling}
    log = table.log(
        "Leak-k",
        means=_means_of_leak_k,
        sampling=sampling,
        greedy_by=greedy_by or settings.greedy_by,
        may_repeat=settings.may_repeat,
        draws="sampled" if of_folder else "unknown",
        warnings=(*warnings, *settings.warnings),
    )
    return replace(log, notes=tuple(_notes_on_leak_k(of_folder, log.scores)))


def _note_end(table: Table, prompt_id: str, sample: int, answer: Mapping[str, Json]) -> None:
    """Note that an answer is missing where it states that no model ended it."""
    kind = missing_kind(answer.get("finish_reason"))
    if kind:
        table.problem(prompt_id, sample, kind)


def _means_of_leak_k(score: str) -> Meaning:
    """The tool asks the questions of a forget set, and each of its scores says how much of the answer was given."""
    return "leak" if score in SCORES_OF_LEAK_K else named(score)


def _of_the_question(row: Mapping[str, Json]) -> dict[str, float]:
    """Return the numbers of a line, which are scores of the question as a whole."""
    scores = _numbers(row)
    best = object_at(row, "best_answer").get("rougeL_recall")
    if isinstance(best, (int, float)):
        scores["best_answer.rougeL_recall"] = number(best)
    return scores


def _numbers(row: Mapping[str, Json]) -> dict[str, float]:
    scores = {}
    for name, value in row.items():
        if isinstance(value, (int, float)):
            scores[name] = number(value)
    return scores


def _sampling(path: Path) -> dict[str, float]:
    """Read the settings, which the tool writes only to the name of the folder."""
    stated = FOLDER.search(path.absolute().parent.name)
    if not stated:
        return {}
    try:
        return {"temperature": float(stated[1]), "top_p": float(stated[2])}
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
    _is_leak_k,
    _read_leak_k,
)


def _read_open_unlearning(source: JsonFile) -> Log:
    """Read the blocks with a `generation`; with several, one index is a different question in each."""
    path = source.path
    table = Table(path)
    rows_of_block: dict[str, Rows] = {}
    stated = {}
    for name, block in source.object.items():
        if isinstance(block, dict):
            rows_of_block[name] = _by_index(path, name, block)
            stated[name] = block.get("agg_value")
    generated = []
    for name, rows in rows_of_block.items():
        if any("generation" in row for row in rows.values()):
            generated.append(name)
    if not generated:
        problem = "holds no generations: its metrics judge the reference answers"
        raise BadFile(path, problem, "Evaluate with a ROUGE metric.")
    for name in generated:
        prefix = f"{name}/" if len(generated) > 1 else ""
        _add_generated(table, name, rows_of_block[name], prefix)
    if len(generated) == 1:
        for name, rows in rows_of_block.items():
            if name not in generated:
                _add_scores_of_reference(table, name, rows)
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
        stated=stated,
    )


def _add_generated(table: Table, name: str, rows: Rows, prefix: str) -> None:
    for index, row in rows.items():
        scores = {}
        for key, value in row.items():
            if key not in TEXTS:
                scores[f"{name}.{key}"] = number(value)
        table.prompt(prefix + index, text_at(row, "input"))
        table.answer(prefix + index, 1, row.get("generation"), scores)


def _add_scores_of_reference(table: Table, name: str, rows: Rows) -> None:
    for index, row in rows.items():
        scores = {}
        for key, value in row.items():
            if value is None or isinstance(value, (int, float)):
                scores[f"{name}.{key}"] = number(value)
        table.prompt(index, scores=scores)


def _means_of_open_unlearning(score: str) -> Meaning:
    """A score of the forget set says how much of a forgotten answer was given; of other sets, that the model still knows."""
    if score.startswith("forget"):
        return "leak"
    return "match"


def _by_index(path: Path, name: str, block: Mapping[str, Json]) -> Rows:
    """Return the rows of a metric; a metric with only an aggregate, such as forget quality, has no rows."""
    values = checked(path, f"{name[:80]!r}: `value_by_index`", block.get("value_by_index", {}))
    return {index: row for index, row in values.items() if isinstance(row, dict)}


OPEN_UNLEARNING = Format(
    "open-unlearning",
    "open-unlearning evaluations (*_EVAL.json)",
    lambda first: bool(first) and all("agg_value" in as_object(block) for block in first.values()),
    _read_open_unlearning,
)


def _read_helm(source: JsonFile) -> Log:
    """Read the completions. Other few-shot examples (a trial) or a perturbation make another prompt."""
    path = source.path
    spec = object_at(source.object, "adapter_spec")
    table = Table(path)
    beside = path.with_name(STATISTICS)
    notes = []
    statistics: dict[str, dict[str, float]] = {}
    if beside.is_file():
        statistics = _statistics_of(beside)
    else:
        notes.append(f"no {STATISTICS} beside it: the answers have no scores")
    settings = RequestSettings()
    cached = 0
    temperature = None  # of the first request that states one
    for place, state in enumerate(objects_at(source.object, "request_states"), start=1):
        instance = object_at(state, "instance")
        request = object_at(state, "request")
        result = object_at(state, "result")
        if not isinstance(instance.get("id"), str):
            raise BadFile(
                path,
                f"request state {place}: expected an object with an `instance` that has an `id`",
            )
        if state.get("reference_index") is not None:
            problem = "its requests rate given choices; no answer was drawn"
            raise BadFile(path, problem, "Use the method generation.")
        if temperature is None:
            temperature = request.get("temperature")
        settings.add(request)
        cached += result.get("cached") is True
        _add_completions(table, _name_of(state), request, result, statistics)
    if table.most() > 1:
        notes.insert(
            0, "a statistic of several completions belongs to the prompt, not to an answer"
        )
    sampling = {}
    for setting in ("temperature", "num_outputs", "max_tokens"):
        if spec.get(setting) is not None:
            sampling[setting] = spec[setting]
    if temperature is not None:
        sampling.setdefault("temperature", temperature)
    repeats = None
    warnings = []
    if cached:
        count = f"cached: true in {plural(cached, 'request')}"
        repeats = f"The log says {count}, whose answers come from an earlier run"
        warnings.append(f"{count}: these answers come from an earlier run")
    return table.log(
        "HELM",
        task=text_at(spec, "method"),
        model=text_at(spec, "model"),
        sampling=sampling,
        greedy_by=greedy(sampling) or settings.greedy_by,
        may_repeat=settings.may_repeat,
        means=_means_of_helm,
        repeats=repeats,
        warnings=(*warnings, *settings.warnings),
        notes=notes,
    )


def _add_completions(
    table: Table,
    prompt_id: str,
    request: Mapping[str, Json],
    result: Mapping[str, Json],
    statistics: Mapping[str, dict[str, float]],
) -> None:
    """Add the answers to a request, null for each that did not come. A statistic of several answers is the prompt's."""
    completions = list_at(result, "completions") or [None]
    asked = request.get("num_completions")
    n = len(completions)
    if isinstance(asked, int):
        n = max(n, asked)
    scores = statistics.get(prompt_id, {})
    of_prompt = {}
    of_answer = scores
    if n > 1:
        of_prompt = scores
        of_answer = {}
    table.prompt(prompt_id, text_at(request, "prompt"), planned=n, scores=of_prompt)
    completions += [None] * (n - len(completions))
    for sample, completion in enumerate(completions, start=1):
        text = text_at(as_object(completion), "text")
        kind = missing_kind(_reason_of(completion))
        if result.get("success") is False:
            table.problem(prompt_id, sample, "error")
            text = text or ""
        elif kind:
            table.problem(prompt_id, sample, kind)
        table.answer(prompt_id, sample, text, of_answer, "no completion")


def _means_of_helm(score: str) -> Meaning:
    """HELM compares with references, which may be what must be said or what must not."""
    meaning = named(score)
    if meaning == "unknown":
        return "match"
    return meaning


def _name_of(entry: Mapping[str, Json]) -> str:
    """Return the name of the prompt of a request state or of statistics: instance, perturbation, and trial but the first."""
    instance = object_at(entry, "instance")
    perturbation = as_object(entry.get("perturbation", instance.get("perturbation")))
    trial = entry.get("train_trial_index") or None
    parts = (entry.get("instance_id", instance.get("id")), perturbation.get("name"), trial)
    return "/".join(str(part) for part in parts if part is not None)


def _statistics_of(path: Path) -> dict[str, dict[str, float]]:
    """Return the scores of each prompt by their names; HELM's counts of tokens and seconds are none."""
    scores_of_prompt: dict[str, dict[str, float]] = {}
    for entry in map(as_object, as_list(JsonFile(path).document)):
        for statistic in objects_at(entry, "stats"):
            name = text_at(object_at(statistic, "name"), "name")
            if name and not BOOKKEEPING.match(name) and statistic.get("count"):
                scores = scores_of_prompt.setdefault(_name_of(entry), {})
                scores[name] = number(statistic.get("mean"))
    return scores_of_prompt


HELM = Format(
    "helm",
    "HELM runs (scenario_state.json, with the per_instance_stats.json beside it)",
    lambda first: "adapter_spec" in first and "request_states" in first,
    _read_helm,
)


def _reason_of(completion: Json) -> Json:
    """Why HELM says that a completion ended, None where it does not: {"reason": WORD}, or the word of a client alone."""
    stated = as_object(completion).get("finish_reason")
    if isinstance(stated, dict):
        return stated.get("reason")
    return stated
