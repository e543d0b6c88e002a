"""One MLflow run for results read from a file: numbers, bounds with their guarantees, and a table."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import LetheError
from lethe.tracking import notes, without_password
from lethe.tracking import store as store_of
from lethe.tracking.runs import MAX_METRICS, log_params, log_tables, metric_name

if TYPE_CHECKING:
    import pandas as pd

    from lethe.statistics.bound import Bound

EXPERIMENT = "lethe logs"


def log_bounded(
    name: str,
    numbers: Mapping[str, float],
    bounds: Mapping[str, Bound],
    params: Mapping[str, object],
    table: pd.DataFrame,
    home: Path,
) -> str:
    """Log a run to MLFLOW_TRACKING_URI, or to a local database; return a sentence that says where."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or store_of(home.resolve())
    shown = without_password(uri)
    if not notes.answers(uri):
        raise LetheError(f"MLflow: {shown} does not answer. Start the server, or unset MLFLOW_TRACKING_URI.")
    from mlflow.entities import Metric

    from lethe.tracking import view

    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    client = view.client_of(uri)
    known = client.get_experiment_by_name(EXPERIMENT)
    place = (home.resolve() / ".lethe/mlruns").as_uri() if uri.startswith("sqlite:") else None
    experiment = (
        client.create_experiment(EXPERIMENT, artifact_location=place, tags=dict([view.KIND]))
        if known is None
        else known.experiment_id
    )
    tags = {f"bound.{metric_name(key)}": json.dumps(bound.guarantee_dict()) for key, bound in bounds.items()}
    run_id = client.create_run(experiment, run_name=name, tags=tags | {"lethe.kind": "log"}).info.run_id
    log_params(client, run_id, {key: str(value) for key, value in params.items() if value is not None})
    now = int(time.time() * 1000)
    values = {**numbers, **{key: bound.value for key, bound in bounds.items()}}
    metrics = [Metric(metric_name(key), value, now, 0) for key, value in values.items() if value == value]
    for start in range(0, len(metrics), MAX_METRICS):
        client.log_batch(run_id, metrics=metrics[start : start + MAX_METRICS])
    log_tables(client, run_id, {"questions.json": table})
    client.set_terminated(run_id)
    return f"MLflow: run {name!r} ({run_id}) in experiment {EXPERIMENT!r} at {shown}"
