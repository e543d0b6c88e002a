"""HELM's scenario_state.json, with the scores of the per_instance_stats.json beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe.errors import BadFile, plural
from lethe.io.logs._log import SAME_TEXTS, Format, Log, Table, as_list, as_object, as_text, copies, greedy, number
from lethe.io.logs._untrusted import Source

STATISTICS = "per_instance_stats.json"
BOOKKEEPING = re.compile(
    r"num_|train|inference_|batch_size|finish_reason_|prompt_truncated|max_prob|logprob|predicted_index"
)


def read(source: Source) -> Log:
    """Read the completions. Other few-shot examples (a trial) or a perturbation make another prompt."""
    path, table = source.path, Table(source.path)
    spec, cached = as_object(source.object.get("adapter_spec")), 0
    beside = path.with_name(STATISTICS)
    statistics = _helm_statistics(beside) if beside.is_file() else {}
    for place, state in enumerate(as_list(source.object.get("request_states")), start=1):
        instance, request, result = (
            as_object(as_object(state).get(key)) for key in ("instance", "request", "result")
        )
        if not isinstance(instance.get("id"), str):
            raise BadFile(path, f"request state {place}: expected an object with an `instance` that has an `id`")
        if state.get("reference_index") is not None:
            raise BadFile(
                path, "its requests rate given choices; no answer was drawn", "Use the method generation."
            )
        name, completions = _helm_name(state), as_list(result.get("completions"))
        cached += result.get("cached") is True
        scores, planned = statistics.get(name, {}), request.get("num_completions")
        if isinstance(planned, int):
            completions += [None] * (planned - len(completions))
        several = len(completions) > 1  # then a statistic is about all completions
        table.prompt(name, as_text(request.get("prompt")), scores=scores if several else {})
        for sample, completion in enumerate(completions or [None], start=1):
            text = as_text(as_object(completion).get("text"))
            if text is None or result.get("success") is False:
                table.problem(name, sample, "error" if result.get("success") is False else "no completion")
            table.answer(name, sample, text or "", {} if several else scores)
    sampling = {
        key: spec[key] for key in ("temperature", "num_outputs", "max_tokens") if spec.get(key) is not None
    }
    reason = greedy(sampling) if table.most() > 1 else None
    warnings = [SAME_TEXTS] if table.equal_texts() and not reason else []
    if cached:
        warnings.append(f"cached: true in {plural(cached, 'request')}: these answers come from an earlier run")
    notes = (
        ["a statistic of several completions belongs to the prompt, not to an answer"] if table.most() > 1 else []
    )
    return Log(
        path=path,
        format=FORMAT.name,
        tool="HELM",
        task=as_text(spec.get("method")),
        model=as_text(spec.get("model")),
        sampling=sampling,
        draws="copies" if reason else "unknown",
        refusal=copies(reason, table.most()) if reason else None,
        warnings=tuple(warnings),
        notes=(*notes, *(() if beside.is_file() else (f"no {STATISTICS} beside it: the answers have no scores",))),
        **table.finish(),
    )


def _helm_name(entry: Mapping[str, Any]) -> str:
    instance, trial = as_object(entry.get("instance")), entry.get("train_trial_index")
    changed = as_object(entry.get("perturbation", instance.get("perturbation"))).get("name")
    parts = [entry.get("instance_id", instance.get("id")), changed, trial if trial else None]
    return "/".join(str(part) for part in parts if part is not None)


def _helm_statistics(path: Path) -> dict[str, dict[str, float]]:
    """The statistics of each prompt that are scores, by name."""
    named: dict[str, dict[str, float]] = {}
    for entry in map(as_object, as_list(Source(path).document)):
        for one in map(as_object, as_list(entry.get("stats"))):
            name = as_text(as_object(one.get("name")).get("name"))
            if name and not BOOKKEEPING.match(name) and one.get("count"):
                named.setdefault(_helm_name(entry), {})[name] = number(one.get("mean"))
    return named


FORMAT = Format(
    "helm",
    "HELM runs (scenario_state.json, with the per_instance_stats.json beside it)",
    lambda first: "adapter_spec" in first and "request_states" in first,
    read,
)
