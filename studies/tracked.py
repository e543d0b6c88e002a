"""Studies in MLflow: every finished study is a run of the experiment `lethe studies`, with its outcome
file, its figures, its settings as params and its numbers as metrics.

As for pipelines, the server is MLFLOW_TRACKING_URI, or else the database of the clone, which also takes
the run of a study whose server does not answer. LETHE_TRACKING=off logs nothing.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lethe import tracking
from lethe.io.files import Json, flat_items, flat_numbers, read_json

EXPERIMENT = "lethe studies"


def log(outcome: Path, figures: Sequence[Path] = ()) -> str:
    """Log an outcome file and return a sentence about it, "" where tracking is off. Never raises:
    the outcome matters more.
    """
    if os.environ.get("LETHE_TRACKING") == "off":
        return ""
    home = Path.cwd()
    uri = os.environ.get("MLFLOW_TRACKING_URI") or tracking.store(home)
    doubt = ""
    if not tracking.answers(uri):
        doubt = f"{tracking.without_password(uri)} does not answer; "
        uri = tracking.store(home)
    try:
        with tracking.in_turn(home):
            run_id = _log(uri, home, outcome, figures)
    except Exception as error:  # whatever MLflow raises, the study's work is done
        return f"MLflow: the study is not logged ({type(error).__name__})."
    address = tracking.without_password(uri)
    return f"MLflow: {doubt}run {run_id} in experiment {EXPERIMENT!r} at {address}"


def _log(uri: str, home: Path, outcome: Path, figures: Sequence[Path]) -> str:
    from lethe.tracking import runs

    document = read_json(outcome)
    client = runs.client_of(uri)
    place = (home / ".lethe/mlruns").as_uri() if uri.startswith("sqlite:") else None
    experiment = runs.experiment_of(client, place, EXPERIMENT)
    tags = {
        "lethe.kind": "study",
        "lethe.command": document["command"],
        "mlflow.source.git.commit": document["commit"],
    }
    run_id = client.create_run(experiment, run_name=document["name"], tags=tags).info.run_id
    params = _flat({**document["settings"], "seeds": document["seeds"]})
    runs.log_numbers(client, run_id, flat_numbers(_keyed(document["values"])), params)
    client.log_artifact(run_id, str(outcome))
    for figure in figures:
        client.log_artifact(run_id, str(figure), "figures")
    client.set_terminated(run_id)
    return run_id


def _flat(settings: Mapping[str, Json]) -> dict[str, str]:
    """The settings as text; those of nested sections have dotted keys."""
    return {key: str(value) for key, value in flat_items(settings)}


def _keyed(values: Json) -> dict[str, Json]:
    """The values with a list's places as keys, so that every number has a name."""
    if isinstance(values, list):
        items = [(str(place), value) for place, value in enumerate(values)]
    else:
        items = list(values.items())
    keyed: dict[str, Json] = {}
    for key, value in items:
        keyed[key] = _keyed(value) if isinstance(value, (list, Mapping)) else value
    return keyed
