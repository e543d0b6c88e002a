"""A model of a pipeline as LoggedModel of MLflow: linked with its run, its datasets, and each number with its data."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput, LoggedModelStatus

from lethe.errors import LetheError
from lethe.io.files import read_artifact
from lethe.tracking.entries import RunEntry

WEIGHTS = "lethe.weights"  # tag: the digest of the folder's listing, which `lethe attest` names as subject
DIGEST = 32  # hex digits of a dataset's digest: MLflow takes 36 characters
CONTEXT = "mlflow.data.context"
FORGET = "forget"  # the split of a number whose row names none
NO_NAME = re.compile(r"[/:.%\"']")  # characters that no name of a LoggedModel may hold


@dataclass(frozen=True)
class Linked:
    """A LoggedModel, the datasets of its run by split, and the split of each number."""

    model_id: str
    dataset_of_split: Mapping[str, Dataset]
    split_of_number: Mapping[str, str]

    def dataset(self, number: str) -> Dataset | None:
        """The data that a number is of; None where the run has no such split."""
        return self.dataset_of_split.get(self.split_of_number.get(number, FORGET))


def begin(
    client: MlflowClient,
    experiment: str,
    run_id: str,
    entry: RunEntry,
    params: Mapping[str, str],
    workspace: Path,
) -> Linked:
    """Create the LoggedModel of an entry, and link it and its datasets with the run; `finish` makes it ready."""
    tags = {"lethe.model": entry.name}
    weights = _weights(entry, workspace)
    if weights is not None:
        tags[WEIGHTS] = weights
    is_unlearned = any(address.startswith("unlearn@") for address in entry.stages)
    model = client.create_logged_model(
        experiment,
        name=NO_NAME.sub("_", entry.name),
        source_run_id=run_id,
        tags=tags,
        params=dict(params),
        model_type="unlearned" if is_unlearned else "model",
    )
    datasets = _datasets(workspace)
    inputs = []
    for split, dataset in datasets.items():
        inputs.append(DatasetInput(dataset, [InputTag(CONTEXT, split)]))
    client.log_inputs(run_id, datasets=inputs, models=[LoggedModelInput(model.model_id)])
    split_of_number: dict[str, str] = {}
    for row in entry.rows:
        if row.scope == "model":
            names = [name for name in row.names() if name]
            split_of_number |= dict.fromkeys(names, row.split or FORGET)
    return Linked(model.model_id, datasets, split_of_number)


def finish(client: MlflowClient, linked: Linked) -> None:
    """Say that a logged model is complete."""
    client.finalize_logged_model(linked.model_id, LoggedModelStatus.READY)


def discard(client: MlflowClient, experiment: str, run_id: str) -> None:
    """Delete the LoggedModels of a run whose logging was interrupted."""
    query = f"source_run_id = '{run_id}'"
    for model in client.search_logged_models([experiment], filter_string=query):
        client.delete_logged_model(model.model_id)


def _weights(entry: RunEntry, workspace: Path) -> str | None:
    """The digest of the listing of the model's folder; None for a server and for a folder that is gone."""
    from lethe.models.listing import listing_of

    about = workspace / "data" / "generations" / entry.name / "about.json"
    if about.is_file() and read_artifact(about).get("served"):
        return None
    path = entry.params.get("model.path")
    if not path or not (workspace / path).is_dir():
        return None
    try:
        return listing_of(workspace / path).digest
    except LetheError:  # no folder with safetensors: the run is logged all the same
        return None


def _datasets(workspace: Path) -> dict[str, Dataset]:
    """The splits of the dataset, each by the first digits of its file's SHA-256."""
    datasets = {}
    for path in sorted((workspace / "data" / "dataset").glob("*.jsonl")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:DIGEST]
        source = path.relative_to(workspace).as_posix()
        datasets[path.stem] = Dataset(path.stem, digest, "local", source)
    return datasets
