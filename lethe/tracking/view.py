"""The experiment's own pages in MLflow: models by leakage, runs by pipeline, and what their columns mean."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

from lethe.results import quantities

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "lethe"
# MLflow 3 opens an experiment without a kind on its page of traces, which would be empty.
KIND = ("mlflow.experimentKind", "custom_model_development")
WORKFLOW = "machine_learning"  # the side of MLflow's pages that has runs first
MODELS, PIPELINES = "lethe-models", "lethe-pipelines"  # the keys of the views, which an address names
STANDING = ("tags", "lethe.standing")
OTHERS = (("params", "method"), ("tags", "lethe.pipeline"))  # columns after the metrics
ABOUT = """\
Each pipeline is a run with one child run per model. A model that an earlier pipeline measured is not logged again: the \
description of a pipeline links all its models and says what changed since the previous pipeline.

- **Which model leaks least**: read the verdicts. Models are sorted by an upper bound on the share of leaking answers (or \
the mean score) of the worst question. Compare utility too: a destroyed model leaks nothing.
- **What changed between two pipelines**: open the description of the later one, or tick both and press Compare.
- **Which answers leaked**: open a model's run, Artifacts, `worst_answers.json`; `questions.json` has a row per question.

`epsilon_lower` is a lower bound on Epsilon*. Tags `bound.METRIC` say at which alpha a bound holds, what it covers, and \
what it assumes. Runs are records; the artifacts in `data/` are authoritative."""


def client_of(uri: str) -> MlflowClient:
    from mlflow import MlflowClient

    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    for noisy in ("alembic", "mlflow"):  # each would report the tables that it creates
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri)


def experiment_of(client: MlflowClient, place: str | None, name: str = EXPERIMENT) -> str:
    """The id of the experiment, created if it is missing; ``place`` is the folder of its artifacts."""
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return experiment.experiment_id
    return client.create_experiment(name, artifact_location=place, tags={KIND[0]: KIND[1]})


def save(client: MlflowClient, experiment_id: str) -> None:
    """Write kind, description and views to the experiment."""
    newest = client.search_runs([experiment_id], "tags.`lethe.kind` = 'model'", max_results=20)
    known = {key for run in newest for key in run.data.metrics}
    bounds = quantities.worst_bounds()
    leak = next((key for key in bounds if key in known), bounds[-1])
    models = {"orderByKey": f"metrics.`{leak}`", "orderByAsc": True, "searchFilter": "tags.`lethe.kind` = 'model'"}
    pipelines = {
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
    }  # MLflow nests runs only in this order
    metrics = quantities.headline(dict.fromkeys(known, 0.0))
    named = [STANDING, *(("metrics", key) for key in metrics), *OTHERS]
    columns = [f"{kind}.`{name}`" for kind, name in named]
    widths = {columns[0]: 220}  # a verdict is text and needs room
    shared = {"selectedColumns": columns, "columnOrder": columns, "columnWidths": widths}
    client.set_experiment_tag(experiment_id, *KIND)
    client.set_experiment_tag(experiment_id, "mlflow.note.content", ABOUT)
    for key, state in ((MODELS, models), (PIPELINES, pipelines)):
        client.set_experiment_tag(experiment_id, f"mlflow.sharedViewState.{key}", json.dumps(state | shared))


def pages(uri: str) -> list[str]:
    """The models' page and the pipelines' page behind the address of a server; "/" where nothing was logged yet."""
    client = client_of(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return ["/"]
    save(client, experiment.experiment_id)  # an earlier release logged without it
    place = f"/#/experiments/{experiment.experiment_id}/runs?workflowType={WORKFLOW}&viewStateShareKey="
    return [place + key for key in (MODELS, PIPELINES)]
