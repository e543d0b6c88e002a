"""Every Eval Ever (schema 0.3.0): the instances of a run, `UUID_samples.jsonl`, with its aggregate `UUID.json` beside it.

A line is an answer with one score. Lines with one `sample_id` are the answers to a question, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from lethe.errors import BadRow
from lethe.io.answer_ends import missing_kind
from lethe.io.facts import named
from lethe.io.files import Json
from lethe.io.logs._json import is_integer, number, object_at, objects_at, text_at
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import JsonFile
from lethe.io.packed import ENDINGS

ENDING = "_samples.jsonl"
SAMPLE, END = "lethe.sample", "lethe.finish_reason"  # what Lethe adds to the metadata of a line


def _recognises(first: Mapping[str, Json]) -> bool:
    return first.keys() >= {"sample_id", "evaluation", "evaluation_id"}


def _read(source: JsonFile) -> Log:
    table = Table(source.path, first=0)
    counts: Counter[tuple[str, str]] = Counter()
    lost: set[tuple[str, int]] = set()
    for line, row in source.lines():
        value = row.get("sample_id")
        if not isinstance(value, str) and not is_integer(value):
            problem = f"`sample_id` is {type(value).__name__}, expected a text"
            raise BadRow(source.path, line, problem)
        name = table.name(value)
        score = text_at(row, "evaluation_result_id") or text_at(row, "evaluation_name") or "score"
        score = score.removesuffix(
            f"/{name}"
        )  # Lethe names the question in the result of a question
        counts[name, score] += 1
        sample = _number_of(row, counts[name, score])
        table.answered_by(name, text_at(row, "model_id"))
        table.prompt(name, text_at(object_at(row, "input"), "raw"))
        missing = "error" if row.get("error") else missing_kind(object_at(row, "metadata").get(END))
        if missing:
            lost.add((name, sample))
            table.problem(name, sample, missing)
        if (name, sample) in lost:
            continue
        scores = {score: number(object_at(row, "evaluation").get("score"))}
        if (name, sample) in table:
            table.score(name, sample, scores)
        else:
            table.answer(name, sample, _text_of(row), scores, "no output")
    settings = _settings_beside(source.path)
    return table.log(
        "Every Eval Ever",
        means=named,
        model=table.models(),
        **settings.of_log(),
    )


def _number_of(row: Mapping[str, Json], place: int) -> int:
    """The number of an answer: what Lethe wrote, else its place among the lines of the question and score."""
    stated = object_at(row, "metadata").get(SAMPLE)
    if is_integer(stated):
        return stated
    if isinstance(stated, str) and stated.isascii() and stated.isdecimal() and len(stated) < 10:
        return int(stated)
    return place


def _text_of(row: Mapping[str, Json]) -> str | None:
    """The answer: the raw output, or the last message of the assistant."""
    raw = object_at(row, "output").get("raw")
    if isinstance(raw, list) and len(raw) == 1:
        raw = raw[0]
    if isinstance(raw, str):
        return raw
    for message in reversed(objects_at(row, "messages")):
        if message.get("role") == "assistant":
            return text_at(message, "content")
    return None


def _settings_beside(path: Path) -> RequestSettings:
    """The settings in the aggregate beside the lines, whose name is that of the lines; no path in a file is followed."""
    settings = RequestSettings()
    name = path.name
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    beside = path.with_name(f"{name.removesuffix(ENDING)}.json")
    if not name.endswith(ENDING) or not beside.is_file():
        return settings
    for result in objects_at(JsonFile(beside).object, "evaluation_results"):
        config = object_at(result, "generation_config")
        settings.add(object_at(config, "generation_args") or config)
    return settings


FORMAT = Format(
    "every-eval-ever",
    "Every Eval Ever instances (UUID_samples.jsonl, with the UUID.json beside it)",
    _recognises,
    _read,
)
