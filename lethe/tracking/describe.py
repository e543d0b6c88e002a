"""The descriptions of runs, in Markdown: a model's verdict, or what changed since the previous pipeline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lethe.tracking.entries import Entry, Pipeline
from lethe.tracking.tables import shown, worded

if TYPE_CHECKING:
    from mlflow.entities import Run

GAP = "&emsp;"  # MLflow shows the cells of a table without any space between them
CHANGES = 20  # changed params that are listed
SHOWN = (
    "m_bin_worst",
    "m_bin_pooled",
    "tighter_mean_worst",
    "model_utility",
)  # of each model in a pipeline's table


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
    """What changed since an earlier pipeline, then every model with a link to its run.

    Parameters
    ----------
    pipeline
        The pipeline of the note.
    runs
        The run of each entry.
    place
        The address below which the runs lie.
    params
        The params as MLflow keeps them.
    before
        The earlier pipeline; None for the first one.
    earlier
        The previous metrics of each model with a new run.
    """
    links = {name: f"[{escaped(name)}]({place}/{run_id})" for name, run_id in runs.items()}
    said = [] if before is None else _changes(pipeline, links, place, params, before, earlier)
    keys = [key for key in SHOWN if any(key in entry.metrics for entry in pipeline.entries)]
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
        for key in SHOWN
        if key in earlier.get(entry.name, {})
    ]
    said += (
        [*_head("model", "metric", "before", "now"), *rows] if rows else ["No number of a shared model changed."]
    )
    return said


def _head(*cells: str) -> list[str]:
    return [_row(*cells), f"|{' --- |' * len(cells)}"]


def _row(*cells: str) -> str:
    return f"| {f'{GAP} | '.join(cells)} |"


def escaped(text: str) -> str:
    """The text on one line, with the characters that mean something in Markdown escaped."""
    return re.sub(r"([\\`*\[\]<>|~#!])", r"\\\1", " ".join(text.split()))
