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
from lethe.tracking import models, tables
from lethe.tracking.entries import FromFile, Pipeline, RunEntry
from lethe.tracking.tables import shown, worded

GAP = "&emsp;"  # MLflow shows the cells of a table without any space between them
CHANGES = 20  # changed params that are listed
EXPERIMENT = "lethe"  # of pipelines
LOGS = "lethe logs"  # the experiment of results read from a file
# Tags of runs.
FINGERPRINT = "lethe.fingerprint"
STANDING = "lethe.standing"  # the two words on a model, or how many models have each
STANDINGS = "lethe.standings"  # of a pipeline: the two words on each model, as JSON
BEFORE = "lethe.before"  # of a model whose words differ from those of the pipeline before
NOTE = "mlflow.note.content"
GUARANTEES = "guarantees.txt"
# What MLflow takes in one call.
MAX_METRICS = 1000
MAX_PARAMS = 100
MAX_VALUE = 6000  # characters of a param
MAX_TAG = 7900  # characters of a tag
# MLflow 3 opens an experiment without a kind on its page of traces, which would be empty.
KIND = ("mlflow.experimentKind", "custom_model_development")
WORKFLOW = "machine_learning"  # the side of MLflow's pages that has runs first
# The keys of the views, which an address names.
MODELS = "lethe-models"
PIPELINES = "lethe-pipelines"
ABOUT = Path(__file__).with_name("about.md").read_text(encoding="utf-8").strip()


def client_of(uri: str) -> MlflowClient:
    """Return a client that gives up within seconds and does not report the tables that it creates."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    for noisy in ("alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri)


def experiment_of(client: MlflowClient, place: str | None, name: str = EXPERIMENT) -> str:
    """Return the id of an experiment, which is made with artifacts at ``place`` where there is none."""
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return experiment.experiment_id
    return client.create_experiment(name, artifact_location=place, tags={KIND[0]: KIND[1]})


def log(pipeline: Pipeline, uri: str, place: str | None, workspace: Path, home: Path) -> int:
    """Log what a server lacks and update the other descriptions.

    Parameters
    ----------
    pipeline
        The workspace, as `lethe.tracking.entries` reads it.
    uri
        The address of the server, or of a store of MLflow.
    place
        Where the artifacts of a new experiment go; None: where the server puts them.
    workspace
        The folder with params.yaml and data/.
    home
        The repository, of which the workspace is a copy in an experiment of DVC.

    Returns
    -------
    int
        The number of new runs of entries.
    """
    client = client_of(uri)
    experiment = experiment_of(client, place)
    parent = _pipeline_run(client, experiment, pipeline, workspace, home)
    runs: dict[str, str] = {}
    made = 0
    for entry in pipeline.entries:
        finished = _finished(client, experiment, entry.fingerprint)
        run_id = finished or _log_entry(client, experiment, parent, entry, workspace)

        # The words depend on the other models too, so they may change while the numbers do not.
        if entry.verdict:
            client.set_tag(run_id, NOTE, model_note(entry)[:MAX_TAG])
        if entry.standing:
            client.set_tag(run_id, STANDING, entry.standing)
        if finished is None:
            client.set_terminated(run_id)
            made += 1
        runs[entry.name] = run_id

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
            models.discard(client, experiment, run.info.run_id)
            client.delete_run(run.info.run_id)
    return finished


def _pipeline_run(
    client: MlflowClient,
    experiment: str,
    pipeline: Pipeline,
    workspace: Path,
    home: Path,
) -> str:
    """The id of the pipeline's run: the existing one, if only the report has changed since or its logging was interrupted.

    A new run notes the pipeline that finished last, with which its description compares it.
    """
    query = f"tags.`{FINGERPRINT}` = '{pipeline.fingerprint}'"
    for run in client.search_runs([experiment], query, max_results=1):
        return run.info.run_id

    folder = workspace.resolve()
    tags = {
        "lethe.kind": "pipeline",
        FINGERPRINT: pipeline.fingerprint,
        "lethe.folder": str(folder),
    }
    experiment_of_dvc = os.environ.get("DVC_EXP_NAME")
    if experiment_of_dvc:
        tags["lethe.experiment"] = experiment_of_dvc
    commit = git("rev-parse", "HEAD", root=workspace)
    if commit:
        tags["mlflow.source.git.commit"] = commit
    before = newest_pipeline(client, experiment)
    if before is not None:
        tags["lethe.previous"] = before.info.run_id

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
    """Return the run of the pipeline that finished last; None before the first."""
    query = "tags.`lethe.kind` = 'pipeline' and attributes.status = 'FINISHED'"
    runs = client.search_runs(
        [experiment], query, max_results=1, order_by=["attributes.start_time DESC"]
    )
    return next(iter(runs), None)


def _log_entry(
    client: MlflowClient,
    experiment: str,
    parent: str,
    entry: RunEntry,
    workspace: Path,
) -> str:
    """Log an entry as a run below the pipeline's run ``parent``, still open; return its id."""
    pipeline = client.get_run(parent).info.run_name or ""
    name = f"{entry.name}{pipeline.removeprefix('pipeline')}"
    tags = _tags_of(entry, parent, pipeline)
    run_id = client.create_run(experiment, run_name=name, tags=tags).info.run_id

    linked = None
    if entry.kind == "model":
        params = dict(list(_params(entry.params).items())[:MAX_PARAMS])
        linked = models.begin(client, experiment, run_id, entry, params, workspace)
    log_numbers(client, run_id, entry.metrics, entry.params, entry.steps, linked)

    for stage, path in entry.artifacts:
        if path.is_dir():
            client.log_artifacts(run_id, str(path), f"stages/{stage}/{path.parent.name}")
        else:
            client.log_artifact(run_id, str(path), f"stages/{stage}")
    client.log_dict(run_id, dict(entry.stages), "stages/dvc.lock.yaml")
    _log_guarantees(client, run_id, entry.bounds)
    _log_tables(client, run_id, tables.of(entry, workspace))
    if linked is not None:
        models.finish(client, linked)
    return run_id


def _tags_of(entry: RunEntry, parent: str, pipeline: str) -> dict[str, str]:
    """The tags of an entry's run: where it belongs, the outputs of its stages, and why its numbers are refused."""
    tags = {
        "mlflow.parentRunId": parent,
        "lethe.pipeline": pipeline,
        FINGERPRINT: entry.fingerprint,
        "lethe.kind": entry.kind,
        f"lethe.{entry.kind}": entry.name,
    }
    for address, stage in entry.stages.items():
        outs = [f"{out['path']} {str(out.get('md5'))[:8]}" for out in stage.get("outs", [])]
        group = address.partition("@")[0]
        tags[f"stage.{group}"] = f"{address}: {', '.join(outs)}"[:MAX_TAG]
    if entry.refused:
        tags["lethe.refused"] = " ".join(entry.refused)[:MAX_TAG]
    return tags


def log_file(uri: str, place: str | None, results: FromFile) -> str:
    """Log results read from a file; return the start of a sentence that says where."""
    client = client_of(uri)
    experiment = experiment_of(client, place, LOGS)
    tags = {"lethe.kind": "log"}
    run = client.create_run(experiment, run_name=results.name, tags=tags)
    run_id = run.info.run_id
    numbers = dict(results.numbers)
    for key, bound in results.bounds.items():
        numbers[key] = bound.value
    params = {key: str(value) for key, value in results.params.items() if value is not None}
    log_numbers(client, run_id, numbers, params)
    _log_guarantees(client, run_id, results.bounds)
    _log_tables(client, run_id, {"questions.json": results.table})
    client.set_terminated(run_id)
    return f"MLflow: run {results.name!r} ({run_id}) in experiment {LOGS!r}"


def _log_guarantees(client: MlflowClient, run_id: str, bounds: Mapping[str, Bound]) -> None:
    """Log a file with a sentence for each bound: its value, what it covers, its level, assumption and method."""
    if bounds:
        sentences = []
        for name, bound in bounds.items():
            sentences.append(f"{name}: {bound.sentence(of='the questions')}")
        client.log_text(run_id, "\n\n".join(sentences) + "\n", GUARANTEES)


def log_numbers(
    client: MlflowClient,
    run_id: str,
    numbers: Mapping[str, float],
    params: Mapping[str, str],
    steps: Sequence[tuple[int, Mapping[str, float]]] = (),
    linked: models.Linked | None = None,
) -> None:
    """Log numbers, those of the steps of training, and params in as many calls as MLflow needs; NaN is left out.

    Parameters
    ----------
    run_id
        The run that is still open.
    numbers
        By name; a letter that MLflow refuses becomes "_".
    params
        With dotted keys; values of more than `MAX_VALUE` characters are cut.
    steps
        The steps of training, each with its numbers.
    linked
        A logged model, whose numbers these are too, each with the data that it is of.
    """
    now = int(time.time() * 1000)
    metrics = []
    for key, value in numbers.items():
        about: dict[str, str] = {}
        if linked is not None:
            about["model_id"] = linked.model_id
            dataset = linked.dataset(key)
            if dataset is not None:
                about |= {"dataset_name": dataset.name, "dataset_digest": dataset.digest}
        metrics.append(Metric(_name(key), value, now, 0, **about))
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
    """The params as MLflow takes them: keys of its letters, values cut."""
    return {_name(key): value[:MAX_VALUE] for key, value in values.items()}


def _name(key: str) -> str:
    """The key in the letters that MLflow takes."""
    return re.sub(r"[^A-Za-z0-9_./ -]", "_", key)


def _log_tables(client: MlflowClient, run_id: str, named: Mapping[str, pd.DataFrame]) -> None:
    """Log tables as MLflow's pages read them; `MlflowClient.log_table` would append to a table, not replace it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, table in named.items():
            table.to_json(Path(folder) / name, orient="split", index=False)
        client.log_artifacts(run_id, folder)
    listed = [{"path": name, "type": "table"} for name in named]
    client.set_tag(run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps(listed))


def model_note(entry: RunEntry) -> str:
    """The description of a model's run: its words, and where what stands."""
    return (
        f"**{escaped(entry.name)}: {escaped(entry.standing)}**\n\n{escaped(entry.verdict)}\n\n"
        "Answers: Artifacts, `worst_answers.json`. Questions: `questions.json`. All numbers: `metrics.json`. "
        f"What each bound guarantees: `{GUARANTEES}`."
    )


def _describe_pipeline(
    client: MlflowClient,
    experiment: str,
    parent: str,
    pipeline: Pipeline,
    runs: Mapping[str, str],
) -> None:
    """Give the pipeline's run its description: what changed since the one before, and the words on all entries.

    ``runs`` has the id of each entry's run.
    """
    place = f"#/experiments/{experiment}/runs"
    links = {name: f"[{escaped(name)}]({place}/{run_id})" for name, run_id in runs.items()}
    tags = client.get_run(parent).data.tags
    lines: list[str] = []
    turned: dict[str, str] = {}
    if "lethe.previous" in tags:
        before = client.get_run(tags["lethe.previous"])
        turned = _turned(pipeline, before)
        for name, standing in turned.items():
            client.set_tag(runs[name], BEFORE, standing)

        link = f"[{escaped(before.info.run_name)}]({place}/{before.info.run_id})"
        lines += [f"**Changed since {link}**", ""]
        lines += _changed_verdicts(pipeline, links, turned)
        lines += _changed_params(pipeline, before)
        lines += _changed_numbers(pipeline, links, _earlier_numbers(client, runs, before))
    lines += _models_of(pipeline, links)

    # What the next pipeline compares itself with stands in tags: they are found without reading a run's artifacts.
    standings = {entry.name: entry.standing for entry in pipeline.entries}
    client.set_tag(parent, NOTE, "\n".join(lines).strip()[:MAX_TAG])
    _log_words(client, parent, pipeline, turned)
    client.set_tag(parent, "lethe.runs", _fitting(runs))
    client.set_tag(parent, STANDINGS, _fitting(standings))

    of_pipeline = {"models.json": tables.models(pipeline), **tables.rankings(pipeline)}
    of_pipeline |= tables.methods(pipeline)
    _log_tables(client, parent, of_pipeline)
    if pipeline.report is not None:
        client.log_artifacts(parent, str(pipeline.report), "report")


def _log_words(
    client: MlflowClient, parent: str, pipeline: Pipeline, turned: Mapping[str, str]
) -> None:
    """Log how many models have each word, and name those whose words differ from the pipeline before."""
    words: Counter[str] = Counter()
    for entry in pipeline.entries:
        word, comma, _ = entry.standing.partition(",")
        if comma:
            words[word] += 1
    if not words:
        return
    log_numbers(client, parent, {f"models {word}": count for word, count in words.items()}, {})
    text = ", ".join(f"{count} {word}" for word, count in words.items())
    if turned:
        text = f"changed: {', '.join(turned)}; {text}"
    client.set_tag(parent, STANDING, text[:MAX_TAG])


def _fitting(values: Mapping[str, str]) -> str:
    """The values as JSON that fits a tag; the last ones are left out where it would not."""
    rest = dict(values)
    text = json.dumps(rest)
    while len(text) > MAX_TAG:
        rest.popitem()
        text = json.dumps(rest)
    return text


def _turned(pipeline: Pipeline, before: Run) -> dict[str, str]:
    """The words of the pipeline before, of each model whose words are others now."""
    standings = json.loads(before.data.tags.get(STANDINGS, "{}"))
    turned: dict[str, str] = {}
    for entry in pipeline.entries:
        if entry.standing and standings.get(entry.name, entry.standing) != entry.standing:
            turned[entry.name] = standings[entry.name]
    return turned


def _earlier_numbers(
    client: MlflowClient, runs: Mapping[str, str], before: Run
) -> dict[str, dict[str, float]]:
    """The numbers of the pipeline before, of each entry that has another run now."""
    numbers: dict[str, dict[str, float]] = {}
    for name, run_id in json.loads(before.data.tags.get("lethe.runs", "{}")).items():
        if name in runs and runs[name] != run_id:
            numbers[name] = client.get_run(run_id).data.metrics
    return numbers


def _models_of(pipeline: Pipeline, links: Mapping[str, str]) -> list[str]:
    """The table of all entries with their words and headline numbers."""
    keys = _shown(pipeline)
    lines = ["", "**Models of this pipeline**", "", *_head("model", "verdict", *keys)]
    for entry in pipeline.entries:
        numbers = [shown(entry, key) for key in keys]
        lines.append(_row(links[entry.name], escaped(entry.standing or entry.kind), *numbers))
    return lines


def _changed_verdicts(
    pipeline: Pipeline, links: Mapping[str, str], turned: Mapping[str, str]
) -> list[str]:
    """The table of the models whose words are others now; empty where there is none."""
    if not turned:
        return []
    lines = _head("model", "verdict before", "verdict now")
    for entry in pipeline.entries:
        if entry.name in turned:
            words = (turned[entry.name], entry.standing)
            lines.append(_row(links[entry.name], *map(escaped, words)))
    return [*lines, ""]


def _changed_params(pipeline: Pipeline, before: Run) -> list[str]:
    """The params that differ from those of an earlier pipeline, at most `CHANGES` of them."""
    old = before.data.params
    new = _params(pipeline.params)
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    if not keys:
        return ["No param changed."]
    lines = _head("param", "before", "now")
    for key in keys[:CHANGES]:
        cells = (key, old.get(key, "none"), new.get(key, "none"))
        lines.append(_row(*map(escaped, cells)))
    if len(keys) > CHANGES:
        lines += ["", f"{len(keys) - CHANGES} more params: Compare shows them."]
    return lines


def _changed_numbers(
    pipeline: Pipeline, links: Mapping[str, str], earlier: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """The headline numbers of each entry beside its ``earlier`` ones."""
    rows: list[str] = []
    for entry in pipeline.entries:
        numbers_before = earlier.get(entry.name, {})
        for key in _shown(pipeline):
            if key in numbers_before:
                before = worded(numbers_before[key], entry.bounds.get(key))
                rows.append(_row(links[entry.name], key, before, shown(entry, key)))
    if not rows:
        return ["", "No number of a shared model changed."]
    return ["", *_head("model", "metric", "before", "now"), *rows]


def _shown(pipeline: Pipeline) -> list[str]:
    """The names of the headline numbers of the models, without repetition."""
    keys: dict[str, None] = {}
    for entry in pipeline.entries:
        if entry.kind == "model":
            keys |= dict.fromkeys(quantities.headline(entry.numbers))
    return [*keys]


def _head(*cells: str) -> list[str]:
    """The first two lines of a table in Markdown."""
    return [_row(*cells), f"|{' --- |' * len(cells)}"]


def _row(*cells: str) -> str:
    """A line of a table in Markdown."""
    between = f"{GAP} | "
    return f"| {between.join(cells)} |"


def escaped(text: str) -> str:
    """Return text on one line without a meaning in Markdown."""
    return re.sub(r"([\\`*\[\]<>|~#!])", r"\\\1", " ".join(text.split()))


def _save_views(client: MlflowClient, experiment_id: str) -> None:
    """Save the views of models, the one that may leak least first, and of pipelines, the newest first."""
    only_models = "tags.`lethe.kind` = 'model'"
    logged: set[str] = set()
    for run in client.search_runs([experiment_id], only_models, max_results=20):
        logged.update(run.data.metrics)
    bounds = quantities.worst_bounds()
    leak = next((key for key in bounds if key in logged), bounds[-1])

    columns = [f"tags.`{STANDING}`", f"tags.`{BEFORE}`"]
    for key in quantities.headline(dict.fromkeys(logged, 0.0)):
        columns.append(f"metrics.`{key}`")
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
        tag = f"mlflow.sharedViewState.{key}"
        client.set_experiment_tag(experiment_id, tag, json.dumps(shared | state))


def pages(uri: str) -> list[str]:
    """Return the paths, after the port, of MLflow's pages of models and of pipelines; "/" before the first run."""
    experiment = client_of(uri).get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return ["/"]
    runs = f"/#/experiments/{experiment.experiment_id}/runs"
    place = f"{runs}?workflowType={WORKFLOW}&viewStateShareKey="
    return [place + key for key in (MODELS, PIPELINES)]
