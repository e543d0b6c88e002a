"""Writes a pipeline's entries as MLflow runs: nested, each once, with the verdict, or what changed, as the description."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import LetheError
from lethe.results.quantities import headline
from lethe.tracking import notes, store, tables, view, without_password
from lethe.tracking.entries import Entry, LockedStage, Pipeline
from lethe.tracking.tables import shown, worded

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

    from lethe.statistics.bound import Bound

GAP = "&emsp;"  # MLflow shows the cells of a table without any space between them
CHANGES = 20  # changed params that are listed
STANDINGS = "lethe.standings"  # tag of a pipeline's run: the two words on each model, as JSON
LOGS = "lethe logs"  # the experiment of results read from a file
FINGERPRINT = "lethe.fingerprint"
NOTE = "mlflow.note.content"
MAX_METRICS, MAX_PARAMS = 1000, 100  # what MLflow takes in one call
MAX_VALUE = 6000  # characters of a param
MAX_TAG = 7900  # characters of a tag


def log(pipeline: Pipeline, uri: str, place: str | None, workspace: Path, home: Path) -> int:
    """Log what a server lacks and update the other descriptions; return the number of new runs of entries."""
    client = view.client_of(uri)
    experiment = view.experiment_of(client, place)
    parent = _pipeline_run(client, experiment, pipeline, workspace, home)
    runs: dict[str, str] = {}
    made = 0
    for entry in pipeline.entries:
        known = _found(client, experiment, entry.fingerprint)
        if known is None:
            runs[entry.name] = _log_entry(client, experiment, parent, entry, workspace)
            made += 1
        else:
            runs[entry.name] = known.info.run_id
            _describe(client, known.info.run_id, entry)
    _describe_pipeline(client, experiment, parent, pipeline, runs)
    client.set_terminated(parent)
    view.save(client, experiment)
    return made


def _found(client: MlflowClient, experiment: str, fingerprint: str) -> Run | None:
    """The finished run with this fingerprint; a run whose logging was interrupted is removed."""
    finished = None
    for run in client.search_runs([experiment], f"tags.`{FINGERPRINT}` = '{fingerprint}'"):
        if run.info.status == "FINISHED":
            finished = run
        else:
            client.delete_run(run.info.run_id)
    return finished


def _pipeline_run(client: MlflowClient, experiment: str, pipeline: Pipeline, workspace: Path, home: Path) -> str:
    """The pipeline's run: the existing one, if only the report has changed since or its logging was interrupted."""
    query = f"tags.`{FINGERPRINT}` = '{pipeline.fingerprint}'"
    for run in client.search_runs([experiment], query, max_results=1):
        return run.info.run_id
    tags = {"lethe.kind": "pipeline", FINGERPRINT: pipeline.fingerprint, "lethe.folder": str(workspace.resolve())}
    if name := os.environ.get("DVC_EXP_NAME"):
        tags["lethe.experiment"] = name
    if revision := _git_revision(workspace):
        tags["mlflow.source.git.commit"] = revision
    if before := newest_pipeline(client, experiment):
        tags["lethe.previous"] = before.info.run_id
    point = f" {workspace.resolve().name}" if workspace.resolve() != home else ""
    title = time.strftime("pipeline %Y-%m-%d %H:%M:%S") + point
    run_id = client.create_run(experiment, run_name=title, tags=tags).info.run_id
    log_params(client, run_id, pipeline.params)
    for name in ("params.yaml", "dvc.lock"):
        if (workspace / name).exists():
            client.log_artifact(run_id, str(workspace / name))
    return run_id


def newest_pipeline(client: MlflowClient, experiment: str) -> Run | None:
    query = "tags.`lethe.kind` = 'pipeline' and attributes.status = 'FINISHED'"
    found = client.search_runs([experiment], query, max_results=1, order_by=["attributes.start_time DESC"])
    return found[0] if found else None


def _log_entry(client: MlflowClient, experiment: str, parent: str, entry: Entry, workspace: Path) -> str:
    from mlflow.entities import Metric

    tags = {
        "mlflow.parentRunId": parent,
        "lethe.pipeline": client.get_run(parent).info.run_name or "",
        FINGERPRINT: entry.fingerprint,
        "lethe.kind": entry.kind,
        f"lethe.{entry.kind}": entry.name,
        **{
            f"stage.{address.partition('@')[0]}": _stage(address, stage) for address, stage in entry.stages.items()
        },
        **_guarantees({key: bound for key, bound in entry.bounds.items() if key in entry.metrics}),
    }
    run_id = client.create_run(experiment, run_name=entry.name, tags=tags).info.run_id
    log_params(client, run_id, entry.params)
    now = int(time.time() * 1000)
    metrics = [Metric(metric_name(key), value, now, 0) for key, value in entry.metrics.items()]
    metrics += [
        Metric(f"training/{metric_name(key)}", value, now, step)
        for step, row in entry.steps
        for key, value in row.items()
    ]
    _log_metrics(client, run_id, metrics)
    for stage, path in entry.artifacts:
        if path.is_dir():
            client.log_artifacts(run_id, str(path), f"stages/{stage}/{path.parent.name}")
        else:
            client.log_artifact(run_id, str(path), f"stages/{stage}")
    client.log_dict(run_id, entry.stages, "stages/dvc.lock.yaml")
    log_tables(client, run_id, tables.of(entry, workspace))
    _describe(client, run_id, entry)
    client.set_terminated(run_id)
    return run_id


def log_bounded(
    name: str,
    numbers: Mapping[str, float],
    bounds: Mapping[str, Bound],
    params: Mapping[str, object],
    table: pd.DataFrame,
    home: Path,
) -> str:
    """Log results read from a file to MLFLOW_TRACKING_URI, or to a local database; return a sentence that says where."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or store(home.resolve())
    shown = without_password(uri)
    if not notes.answers(uri):
        raise LetheError(f"MLflow: {shown} does not answer. Start the server, or unset MLFLOW_TRACKING_URI.")
    from mlflow.entities import Metric

    client = view.client_of(uri)
    place = (home.resolve() / ".lethe/mlruns").as_uri() if uri.startswith("sqlite:") else None
    experiment = view.experiment_of(client, place, LOGS)
    tags = _guarantees(bounds) | {"lethe.kind": "log"}
    run_id = client.create_run(experiment, run_name=name, tags=tags).info.run_id
    log_params(client, run_id, {key: str(value) for key, value in params.items() if value is not None})
    values = {**numbers, **{key: bound.value for key, bound in bounds.items()}}
    now = int(time.time() * 1000)
    _log_metrics(client, run_id, [Metric(metric_name(key), value, now, 0) for key, value in values.items()])
    log_tables(client, run_id, {"questions.json": table})
    client.set_terminated(run_id)
    return f"MLflow: run {name!r} ({run_id}) in experiment {LOGS!r} at {shown}"


def _guarantees(bounds: Mapping[str, Bound]) -> dict[str, str]:
    """Tags that say how each bound holds."""
    return {f"bound.{metric_name(key)}": json.dumps(bound.guarantee_dict()) for key, bound in bounds.items()}


def _log_metrics(client: MlflowClient, run_id: str, metrics: Sequence[Metric]) -> None:
    known = [metric for metric in metrics if metric.value == metric.value]  # not NaN
    for start in range(0, len(known), MAX_METRICS):
        client.log_batch(run_id, metrics=known[start : start + MAX_METRICS])


def _stage(address: str, stage: LockedStage) -> str:
    """A stage in a tag: its address, and the hashes of its outputs."""
    outs = (f"{out['path']} {str(out.get('md5'))[:8]}" for out in stage.get("outs", []))
    return f"{address}: {', '.join(outs)}"[:MAX_TAG]


def _describe(client: MlflowClient, run_id: str, entry: Entry) -> None:
    note = model_note(entry)
    if note:
        client.set_tag(run_id, NOTE, note[:MAX_TAG])
        client.set_tag(run_id, "lethe.standing", entry.standing or entry.kind)


def _describe_pipeline(
    client: MlflowClient, experiment: str, parent: str, pipeline: Pipeline, runs: Mapping[str, str]
) -> None:
    """The pipeline's table of models, what changed since the one before, and its report."""
    tags = client.get_run(parent).data.tags
    before = client.get_run(tags["lethe.previous"]) if "lethe.previous" in tags else None
    earlier = {}
    if before is not None:
        known = json.loads(before.data.tags.get("lethe.runs", "{}"))
        changed = {name: run_id for name, run_id in known.items() if name in runs and runs[name] != run_id}
        earlier = {name: client.get_run(run_id).data.metrics for name, run_id in changed.items()}
    place = f"#/experiments/{experiment}/runs"
    note = pipeline_note(pipeline, runs, place, _params(pipeline.params), before, earlier)
    client.set_tag(parent, NOTE, note[:MAX_TAG])
    client.set_tag(parent, "lethe.runs", _fitting(runs))
    client.set_tag(parent, STANDINGS, _fitting({entry.name: entry.standing for entry in pipeline.entries}))
    log_tables(client, parent, {tables.MODELS: tables.models(pipeline)})
    if pipeline.report is not None:
        client.log_artifacts(parent, str(pipeline.report), "report")


def log_tables(client: MlflowClient, run_id: str, named: Mapping[str, pd.DataFrame]) -> None:
    """Log tables as MLflow's pages read them; `MlflowClient.log_table` would append to a table, not replace it."""
    from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS

    with tempfile.TemporaryDirectory() as folder:
        for name, table in named.items():
            table.to_json(Path(folder) / name, orient="split", index=False)
        client.log_artifacts(run_id, folder)
    listed = [{"path": name, "type": "table"} for name in named]
    client.set_tag(run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps(listed))


def log_params(client: MlflowClient, run_id: str, values: Mapping[str, str]) -> None:
    """Log params in as many calls as MLflow needs."""
    from mlflow.entities import Param

    params = [Param(key, value) for key, value in _params(values).items()]
    for start in range(0, len(params), MAX_PARAMS):
        client.log_batch(run_id, params=params[start : start + MAX_PARAMS])


def _params(values: Mapping[str, str]) -> dict[str, str]:
    """Params as MLflow keeps them."""
    return {metric_name(key): value[:MAX_VALUE] for key, value in values.items()}


def _fitting(values: Mapping[str, str]) -> str:
    """What a pipeline's tag holds of each entry, of as many as fit."""
    kept = dict(values)
    while len(text := json.dumps(kept)) > MAX_TAG:
        kept.popitem()
    return text


def _git_revision(workspace: Path) -> str:
    command = ["git", "-C", str(workspace), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def metric_name(key: str) -> str:
    """The key, with only the characters that MLflow allows in names."""
    return re.sub(r"[^A-Za-z0-9_./ -]", "_", key)


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
