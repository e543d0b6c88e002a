"""The descriptions of runs, in Markdown: a model's verdict, or what changed since the previous pipeline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lethe.results.quantities import headline
from lethe.tracking.entries import Entry, Pipeline
from lethe.tracking.tables import shown, worded

if TYPE_CHECKING:
    from mlflow.entities import Run

GAP = "&emsp;"  # MLflow shows the cells of a table without any space between them
CHANGES = 20  # changed params that are listed
STANDINGS = "lethe.standings"  # tag of a pipeline's run: the two words on each model, as JSON


def model_note(entry: Entry) -> str:
    """The verdict, and where the evidence is; empty for an entry without a verdict."""
    if not entry.verdict:
        return ""
    head = f"**{escaped(entry.name)}: {escaped(entry.standing)}**\n\n"
    rest = (
        "\n\nAnswers: Artifacts, `worst_answers.json`. Questions: `questions.json`. All numbers: `metrics.json`."
    )
    return head + escaped(entry.verdict) + rest


def pipeline_note(
    pipeline: Pipeline,
    runs: Mapping[str, str],
    place: str,
    params: Mapping[str, str],
    before: Run | None,
    earlier: Mapping[str, Mapping[str, float]],
) -> str:
    """What changed since an earlier pipeline, then every model with a link to its run."""
    links = {name: f"[{escaped(name)}]({place}/{run_id})" for name, run_id in runs.items()}
    said = [] if before is None else _changes(pipeline, links, place, params, before, earlier)
    keys = _shown(pipeline)
    said += ["", "**Models of this pipeline**", "", *_head("model", "verdict", *keys)]
    said += [
        _row(links[entry.name], escaped(entry.standing or entry.kind), *(shown(entry, key) for key in keys))
        for entry in pipeline.entries
    ]
    return "\n".join(said).strip()


def _changes(
    pipeline: Pipeline,
    links: Mapping[str, str],
    place: str,
    params: Mapping[str, str],
    before: Run,
    earlier: Mapping[str, Mapping[str, float]],
) -> list[str]:
    old = before.data.params
    keys = sorted(key for key in old.keys() | params.keys() if old.get(key) != params.get(key))
    said = [f"**Changed since [{escaped(before.info.run_name)}]({place}/{before.info.run_id})**", ""]
    standings = json.loads(before.data.tags.get(STANDINGS, "{}"))
    verdicts = [
        _row(links[entry.name], escaped(standings[entry.name]), escaped(entry.standing))
        for entry in pipeline.entries
        if entry.standing and standings.get(entry.name, entry.standing) != entry.standing
    ]
    if verdicts:
        said += [*_head("model", "verdict before", "verdict now"), *verdicts, ""]
    if keys:
        said += _head("param", "before", "now")
        said += [
            _row(escaped(key), *(escaped(held.get(key, "none")) for held in (old, params)))
            for key in keys[:CHANGES]
        ]
        said += [""] + (
            [f"{len(keys) - CHANGES} more params: Compare shows them.", ""] if len(keys) > CHANGES else []
        )
    else:
        said += ["No param changed.", ""]
    rows = [
        _row(links[entry.name], key, worded(earlier[entry.name][key], entry.bounds.get(key)), shown(entry, key))
        for entry in pipeline.entries
        for key in _shown(pipeline)
        if key in earlier.get(entry.name, {})
    ]
    said += (
        [*_head("model", "metric", "before", "now"), *rows] if rows else ["No number of a shared model changed."]
    )
    return said


def _shown(pipeline: Pipeline) -> list[str]:
    """The metrics in a pipeline's tables: the headlines of its models."""
    models = [entry for entry in pipeline.entries if entry.kind == "model"]
    return list(dict.fromkeys(key for entry in models for key in headline(entry.numbers)))


def _head(*cells: str) -> list[str]:
    return [_row(*cells), f"|{' --- |' * len(cells)}"]


def _row(*cells: str) -> str:
    return f"| {f'{GAP} | '.join(cells)} |"


def escaped(text: str) -> str:
    """The text on one line, with the characters that mean something in Markdown escaped."""
    return re.sub(r"([\\`*\[\]<>|~#!])", r"\\\1", " ".join(text.split()))
