"""HELM's scenario_state.json, with the scores of the per_instance_stats.json beside it."""

import re
from collections.abc import Mapping
from pathlib import Path

from lethe.errors import BadFile, plural
from lethe.io.answer_ends import missing_kind
from lethe.io.facts import Meaning, is_cached, named
from lethe.io.files import Json
from lethe.io.logs._decoding import OFF, greedy
from lethe.io.logs._json import as_list, as_object, list_at, number, object_at, objects_at, text_at
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import JsonFile
from lethe.io.row_ends import kind_of

STATISTICS = "per_instance_stats.json"
BOOKKEEPING = re.compile(
    r"num_|train|inference_|batch_size|finish_reason_|prompt_truncated|max_prob|logprob|predicted_index"
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
        name = _name_of(state)
        settings.add({**spec, **request}, question=name)
        cached += is_cached(result)
        _add_completions(table, name, request, result, statistics)
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
        mixed=settings.mixed,
        selected=settings.chosen,
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
        beside = {**as_object(completion), "finish_reason": None}
        kind = missing_kind(_reason_of(completion)) or kind_of(beside)
        if str(result.get("success")).lower() in OFF or kind_of(result):
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


FORMAT = Format(
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
