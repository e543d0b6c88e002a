"""deepeval's test runs: `.latest_test_run.json` and exported runs, and the results of `evaluate`.

A test case has an input, an output and a score by each metric. Test cases with one input, context and expected output are
answers to one question.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from lethe.errors import BadFile
from lethe.io.facts import Meaning, named
from lethe.io.files import Json
from lethe.io.logs._json import as_object, number, object_at, objects_at, text_at
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import JsonFile

CASES = ("testCases", "test_results", "testResults")
CONVERSATIONS = ("conversationalTestCases", "conversational_test_cases")
SUCCESS = "success"  # whether every metric passes its threshold


def _run_of(first: Mapping[str, Json]) -> dict[str, Json]:
    return object_at(first, "testRunData") or dict(first)


def _recognises(first: Mapping[str, Json]) -> bool:
    run = _run_of(first)
    for key in CASES:
        cases = run.get(key)
        if isinstance(cases, list) and cases:
            return bool({"metricsData", "metrics_data"} & as_object(cases[0]).keys())
    return False


def _read(source: JsonFile) -> Log:
    run = _run_of(source.object)
    key = next(key for key in CASES if isinstance(run.get(key), list))
    table = Table(source.path)
    stated = object_at(run, "hyperparameters")
    settings = RequestSettings()
    refused: dict[str, str] = {}
    name_of_question: dict[str, str] = {}
    answers_of: Counter[str] = Counter()
    for place, case in enumerate(objects_at(run, key), start=1):
        question = text_at(case, "input")
        if question is None:
            if case.get("conversational"):
                table.absent("conversation")
                continue
            raise BadFile(source.path, f"test case {place} of `{key}` has no text `input`")
        name = text_at(case, "name") or f"case {place}"
        asked = [
            question,
            case.get("context"),
            case.get("expectedOutput", case.get("expected_output")),
        ]
        question_key = json.dumps(asked)
        if name in name_of_question.values() and question_key not in name_of_question:
            name = f"{name}, case {place}"
        name = name_of_question.setdefault(question_key, name)
        answers_of[name] += 1
        sample = answers_of[name]
        table.prompt(name, question)
        text = case.get("actualOutput", case.get("actual_output"))
        scores = {SUCCESS: number(case.get(SUCCESS))}
        for metric in (*objects_at(case, "metricsData"), *objects_at(case, "metrics_data")):
            metric_name = text_at(metric, "name") or "metric"
            if metric_name in scores:
                refused[metric_name] = "two metrics of a test case have this name"
            scores[metric_name] = number(metric.get("score"))
            if metric.get("error"):
                table.problem(name, sample, "metric failed", metric_name)
        settings.add({"hyperparameters": stated, **case}, question=name)
        table.note_end(name, sample, case)
        table.answer(name, sample, text, scores, "no output")
    for conversations in CONVERSATIONS:
        if objects_at(run, conversations):
            table.absent("conversation", len(objects_at(run, conversations)))
    return table.log(
        "deepeval",
        means=_means,
        task=text_at(run, "identifier") or text_at(run, "testFile"),
        model=text_at(stated, "model"),
        **settings.of_log(),
        refused=refused,
    )


def _means(score: str) -> Meaning:
    """A test that passes may ask for the content or against it; a metric's direction depends on the metric."""
    return "pass" if score == SUCCESS else named(score)


FORMAT = Format("deepeval", "deepeval test runs (.latest_test_run.json)", _recognises, _read)
