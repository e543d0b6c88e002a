"""Writes a pipeline's entries as MLflow runs: nested, each once, with the verdict, or what changed, as the description."""

import json
import logging
import math
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS

from lethe.process import git
from lethe.results import quantities
from lethe.statistics.bound import Bound
from lethe.tracking import tables
from lethe.tracking.entries import Entry, FromFile, Pipeline
from lethe.tracking.tables import shown, worded

GAP = "&emsp;"  # MLflow shows the cells of a table without any space between them
CHANGES = 20  # changed params that are listed
# The experiments of pipelines, and of results read from a file.
EXPERIMENT, LOGS = "lethe", "lethe logs"
STANDINGS = "lethe.standings"  # tag of a pipeline's run: the two words on each model, as JSON
FINGERPRINT, STANDING, NOTE = "lethe.fingerprint", "lethe.standing", "mlflow.note.content"
BEFORE = "lethe.before"  # tag of a model's run whose words differ from those of the pipeline before
MAX_METRICS, MAX_PARAMS = 1000, 100  # what MLflow takes in one call
MAX_VALUE, MAX_TAG = 6000, 7900  # characters of a param and of a tag
# MLflow 3 opens an experiment without a kind on its page of traces, which would be empty.
KIND = ("mlflow.experimentKind", "custom_model_development")
WORKFLOW = "machine_learning"  # the side of MLflow's pages that has runs first
# The keys of the views, which an address names.
MODELS, PIPELINES = "lethe-models", "lethe-pipelines"
ABOUT = Path(__file__).with_name("about.md").read_text(encoding="utf-8").strip()


def client_of(uri: str) -> MlflowClient:
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    for noisy in ("alembic", "mlflow"):  # each would report the tables that it creates
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri)


def experiment_of(client: MlflowClient, place: str | None, name: str = EXPERIMENT) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return experiment.experiment_id
    return client.create_experiment(name, artifact_location=place, tags={KIND[0]: KIND[1]})


def log(pipeline: Pipeline, uri: str, place: str | None, workspace: Path, home: Path) -> int:
    """Log what a server lacks and update the other descriptions; return the number of new runs of entries."""
    client = client_of(uri)
    experiment = experiment_of(client, place)
    parent = _pipeline_run(client, experiment, pipeline, workspace, home)
    runs: dict[str, str] = {}
    made = 0
    for entry in pipeline.entries:
        finished = _finished(client, experiment, entry.fingerprint)
        made += finished is None
        runs[entry.name] = finished or _log_entry(client, experiment, parent, entry, workspace)
        if entry.verdict:
            client.set_tag(runs[entry.name], NOTE, model_note(entry)[:MAX_TAG])
        if entry.standing:
            client.set_tag(runs[entry.name], STANDING, entry.standing)
        if finished is None:
            client.set_terminated(runs[entry.name])
    _describe_pipeline(client, experiment, parent, pipeline, runs)
    client.set_terminated(parent)
    _save_views(client, experiment)
    return made


def _finished(client: MlflowClient, experiment: str, fingerprint: str) -> str | None:
    """The finished run with this fingerprint; a run whose logging was interrupted is removed."""
    finished = None
    for run in client.search_runs([experiment], f"tags.`{FINGERPRINT}` = '{fingerprint}'"):
        if run.info.status == "FINISHED":
            finished = run.info.run_id
        else:
            client.delete_run(run.info.run_id)
    return finished


def _pipeline_run(
    client: MlflowClient, experiment: str, pipeline: Pipeline, workspace: Path, home: Path
) -> str:
    """The pipeline's run: the existing one, if only the report has changed since or its logging was interrupted."""
    query = f"tags.`{FINGERPRINT}` = '{pipeline.fingerprint}'"
    for run in client.search_runs([experiment], query, max_results=1):
        return run.info.run_id
    folder = workspace.resolve()
    before = newest_pipeline(client, experiment)
    stated: dict[str, str | None] = {
        "lethe.kind": "pipeline",
        FINGERPRINT: pipeline.fingerprint,
        "lethe.folder": str(folder),
        "lethe.experiment": os.environ.get("DVC_EXP_NAME"),
        "mlflow.source.git.commit": git("rev-parse", "HEAD", root=workspace),
    }
    if before is not None:
        stated["lethe.previous"] = before.info.run_id
    tags = {key: value for key, value in stated.items() if value}
    title = time.strftime("pipeline %Y-%m-%d %H:%M:%S")
    if folder != home:  # a copy of the repository, in which DVC runs an experiment
        title += f" {folder.name}"
    run_id = client.create_run(experiment, run_name=title, tags=tags).info.run_id
    log_numbers(client, run_id, {}, pipeline.params)
    for name in ("params.yaml", "dvc.lock"):
        if (workspace / name).exists():
            client.log_artifact(run_id, str(workspace / name))
    return run_id


def newest_pipeline(client: MlflowClient, experiment: str) -> Run | None:
    query = "tags.`lethe.kind` = 'pipeline' and attributes.status = 'FINISHED'"
    runs = client.search_runs(
        [experiment], query, max_results=1, order_by=["attributes.start_time DESC"]
    )
    return next(iter(runs), None)


def _log_entry(
    client: MlflowClient, experiment: str, parent: str, entry: Entry, workspace: Path
) -> str:
    pipeline = client.get_run(parent).info.run_name or ""
    tags = {
        "mlflow.parentRunId": parent,
        "lethe.pipeline": pipeline,
        FINGERPRINT: entry.fingerprint,
        "lethe.kind": entry.kind,
        f"lethe.{entry.kind}": entry.name,
    }
    for address, stage in entry.stages.items():
        outs = [f"{out['path']} {str(out.get('md5'))[:8]}" for out in stage.get("outs", [])]
        tags[f"stage.{address.partition('@')[0]}"] = f"{address}: {', '.join(outs)}"[:MAX_TAG]
    metrics = entry.metrics
    tags |= _guarantees({key: bound for key, bound in entry.bounds.items() if key in metrics})
    if entry.refused:
        tags["lethe.refused"] = " ".join(entry.refused)[:MAX_TAG]
    name = f"{entry.name}{pipeline.removeprefix('pipeline')}"
    run_id = client.create_run(experiment, run_name=name, tags=tags).info.run_id
    log_numbers(client, run_id, entry.metrics, entry.params, entry.steps)
    for stage_name, path in entry.artifacts:
        if path.is_dir():
            client.log_artifacts(run_id, str(path), f"stages/{stage_name}/{path.parent.name}")
        else:
            client.log_artifact(run_id, str(path), f"stages/{stage_name}")
    client.log_dict(run_id, dict(entry.stages), "stages/dvc.lock.yaml")
    _log_tables(client, run_id, tables.of(entry, workspace))
    return run_id


def log_file(uri: str, place: str | None, results: FromFile) -> str:
    """Log results read from a file; return the start of a sentence that says where."""
    client = client_of(uri)
    experiment = experiment_of(client, place, LOGS)
    tags = _guarantees(results.bounds) | {"lethe.kind": "log"}
    run = client.create_run(experiment, run_name=results.name, tags=tags)
    run_id = run.info.run_id
    numbers = dict(results.numbers)
    for key, bound in results.bounds.items():
        numbers[key] = bound.value
    params = {key: str(value) for key, value in results.params.items() if value is not None}
    log_numbers(client, run_id, numbers, params)
    _log_tables(client, run_id, {"questions.json": results.table})
    client.set_terminated(run_id)
    return f"MLflow: run {results.name!r} ({run_id}) in experiment {LOGS!r}"


def _guarantees(bounds: Mapping[str, Bound]) -> dict[str, str]:
    return {
        f"bound.{_name(key)}": json.dumps(bound.guarantee_dict()) for key, bound in bounds.items()
    }


def log_numbers(
    client: MlflowClient,
    run_id: str,
    numbers: Mapping[str, float],
    params: Mapping[str, str],
    steps: Sequence[tuple[int, Mapping[str, float]]] = (),
) -> None:
    """Log numbers, those of the steps of training, and params in as many calls as MLflow needs; NaN is left out."""
    now = int(time.time() * 1000)
    metrics = []
    for key, value in numbers.items():
        metrics.append(Metric(_name(key), value, now, 0))
    for step, row in steps:
        for key, value in row.items():
            metrics.append(Metric(f"training/{_name(key)}", value, now, step))
    metrics = [metric for metric in metrics if not math.isnan(metric.value)]
    for start in range(0, len(metrics), MAX_METRICS):
        client.log_batch(run_id, metrics=metrics[start : start + MAX_METRICS])
    logged = [Param(key, value) for key, value in _params(params).items()]
    for start in range(0, len(logged), MAX_PARAMS):
        client.log_batch(run_id, params=logged[start : start + MAX_PARAMS])


def _params(values: Mapping[str, str]) -> dict[str, str]:
    return {_name(key): value[:MAX_VALUE] for key, value in values.items()}


def _name(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9_./ -]", "_", key)


def _log_tables(client: MlflowClient, run_id: str, named: Mapping[str, pd.DataFrame]) -> None:
    """Log tables as MLflow's pages read them; `MlflowClient.log_table` would append to a table, not replace it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, table in named.items():
            table.to_json(Path(folder) / name, orient="split", index=False)
        client.log_artifacts(run_id, folder)
    listed = [{"path": name, "type": "table"} for name in named]
    client.set_tag(run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps(listed))


def model_note(entry: Entry) -> str:
    return (
        f"**{escaped(entry.name)}: {escaped(entry.standing)}**\n\n{escaped(entry.verdict)}\n\n"
        "Answers: Artifacts, `worst_answers.json`. Questions: `questions.json`. All numbers: `metrics.json`."
    )


def _describe_pipeline(
    client: MlflowClient, experiment: str, parent: str, pipeline: Pipeline, runs: Mapping[str, str]
) -> None:
    place = f"#/experiments/{experiment}/runs"
    links = {name: f"[{escaped(name)}]({place}/{run_id})" for name, run_id in runs.items()}
    tags = client.get_run(parent).data.tags
    lines: list[str] = []
    turned: dict[str, str] = {}
    if "lethe.previous" in tags:
        before = client.get_run(tags["lethe.previous"])
        turned = _turned(pipeline, before)
        for name, old in turned.items():
            client.set_tag(runs[name], BEFORE, old)
        logged = json.loads(before.data.tags.get("lethe.runs", "{}"))
        changed = {
            name: run_id for name, run_id in logged.items() if name in runs and runs[name] != run_id
        }
        earlier = {name: client.get_run(run_id).data.metrics for name, run_id in changed.items()}
        lines += [
            f"**Changed since [{escaped(before.info.run_name)}]({place}/{before.info.run_id})**",
            "",
        ]
        lines += _changes(pipeline, links, before, earlier, turned)
    keys = _shown(pipeline)
    lines += ["", "**Models of this pipeline**", "", *_head("model", "verdict", *keys)]
    lines += [
        _row(
            links[entry.name],
            escaped(entry.standing or entry.kind),
            *(shown(entry, key) for key in keys),
        )
        for entry in pipeline.entries
    ]
    client.set_tag(parent, NOTE, "\n".join(lines).strip()[:MAX_TAG])
    words = Counter(
        entry.standing.partition(",")[0] for entry in pipeline.entries if "," in entry.standing
    )
    log_numbers(client, parent, {f"models {word}": count for word, count in words.items()}, {})
    if words:
        counts = ", ".join(f"{count} {word}" for word, count in words.items())
        change = f"changed: {', '.join(turned)}; " if turned else ""
        client.set_tag(parent, STANDING, f"{change}{counts}"[:MAX_TAG])
    client.set_tag(parent, "lethe.runs", _fitting(runs))
    client.set_tag(
        parent, STANDINGS, _fitting({entry.name: entry.standing for entry in pipeline.entries})
    )
    _log_tables(client, parent, {"models.json": tables.models(pipeline)})
    if pipeline.report is not None:
        client.log_artifacts(parent, str(pipeline.report), "report")


def _fitting(values: Mapping[str, str]) -> str:
    rest = dict(values)
    while len(text := json.dumps(rest)) > MAX_TAG:
        rest.popitem()
    return text


def _turned(pipeline: Pipeline, before: Run) -> dict[str, str]:
    old = json.loads(before.data.tags.get(STANDINGS, "{}"))
    return {
        entry.name: old[entry.name]
        for entry in pipeline.entries
        if entry.standing and old.get(entry.name, entry.standing) != entry.standing
    }


def _changes(
    pipeline: Pipeline,
    links: Mapping[str, str],
    before: Run,
    earlier: Mapping[str, Mapping[str, float]],
    turned: Mapping[str, str],
) -> list[str]:
    """The verdicts, params and numbers of shared models that differ from an earlier pipeline's."""
    verdicts = [
        _row(links[entry.name], escaped(turned[entry.name]), escaped(entry.standing))
        for entry in pipeline.entries
        if entry.name in turned
    ]
    lines = [*_head("model", "verdict before", "verdict now"), *verdicts, ""] if verdicts else []
    old, new = before.data.params, _params(pipeline.params)
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    lines += [*_head("param", "before", "now")] if keys else ["No param changed."]
    lines += [
        _row(*map(escaped, (key, old.get(key, "none"), new.get(key, "none"))))
        for key in keys[:CHANGES]
    ]
    lines += (
        ["", f"{len(keys) - CHANGES} more params: Compare shows them."]
        if len(keys) > CHANGES
        else []
    )
    rows = [
        _row(
            links[entry.name],
            key,
            worded(earlier[entry.name][key], entry.bounds.get(key)),
            shown(entry, key),
        )
        for entry in pipeline.entries
        for key in _shown(pipeline)
        if key in earlier.get(entry.name, {})
    ]
    numbers = [*_head("model", "metric", "before", "now"), *rows]
    return [*lines, "", *(numbers if rows else ["No number of a shared model changed."])]


def _shown(pipeline: Pipeline) -> list[str]:
    models = [entry for entry in pipeline.entries if entry.kind == "model"]
    return list(
        dict.fromkeys(key for entry in models for key in quantities.headline(entry.numbers))
    )


def _head(*cells: str) -> list[str]:
    return [_row(*cells), f"|{' --- |' * len(cells)}"]


def _row(*cells: str) -> str:
    return f"| {f'{GAP} | '.join(cells)} |"


def escaped(text: str) -> str:
    return re.sub(r"([\\`*\[\]<>|~#!])", r"\\\1", " ".join(text.split()))


def _save_views(client: MlflowClient, experiment_id: str) -> None:
    only_models = "tags.`lethe.kind` = 'model'"
    newest = client.search_runs([experiment_id], only_models, max_results=20)
    logged = {key for run in newest for key in run.data.metrics}
    bounds = quantities.worst_bounds()
    leak = next((key for key in bounds if key in logged), bounds[-1])
    metrics = quantities.headline(dict.fromkeys(logged, 0.0))
    columns = [f"tags.`{STANDING}`", f"tags.`{BEFORE}`", *(f"metrics.`{key}`" for key in metrics)]
    columns += ["params.`method`", "tags.`lethe.pipeline`"]
    widths = {columns[0]: 220, columns[1]: 140}  # words need room
    shared = {"selectedColumns": columns, "columnOrder": columns, "columnWidths": widths}
    views = {
        MODELS: {
            "orderByKey": f"metrics.`{leak}`",
            "orderByAsc": True,
            "searchFilter": only_models,
        },
        # MLflow nests runs only in this order.
        PIPELINES: {
            "orderByKey": "attributes.start_time",
            "orderByAsc": False,
            "columnWidths": {columns[0]: 400},
        },
    }
    client.set_experiment_tag(experiment_id, *KIND)
    client.set_experiment_tag(experiment_id, NOTE, ABOUT)
    for key, state in views.items():
        client.set_experiment_tag(
            experiment_id, f"mlflow.sharedViewState.{key}", json.dumps(shared | state)
        )


def pages(uri: str) -> list[str]:
    experiment = client_of(uri).get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return ["/"]
    place = (
        f"/#/experiments/{experiment.experiment_id}/runs?workflowType={WORKFLOW}&viewStateShareKey="
    )
    return [place + key for key in (MODELS, PIPELINES)]
