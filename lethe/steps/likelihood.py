"""Stage `likelihood@MODEL`: the model's likelihood of the dataset's answers, token by token."""

from pathlib import Path

from lethe.config.measuring import SERVED, Endpoint, ModelEntry, SampleSettings
from lethe.io.artifacts import NO_TABLES
from lethe.io.files import SCHEMA_VERSION, atomic_folder, write_json
from lethe.io.tables import write_parquet
from lethe.models.checkpoints import Origin, prepare_torch
from lethe.models.likelihood import given_answers
from lethe.sampling.tasks import chosen, heldout


def run(
    name: str,
    sample: SampleSettings,
    model: ModelEntry,
    root: Path = Path("data"),
    source: Origin | None = None,
) -> None:
    """Write the likelihood of the answers of all sampled and held-out rows; ``source`` replaces the folder ``model.path``."""
    if isinstance(source, Endpoint) or (source is None and model.path == SERVED):
        reason = "a server does not state the likelihood of a given answer"
        with atomic_folder(root / "likelihood" / name) as folder:
            write_json(folder / NO_TABLES, {"schema": SCHEMA_VERSION, "reason": reason})
        print(f"{name}: no likelihoods: {reason}")
        return
    prepare_torch()
    dataset = root / "dataset"
    rows = {**chosen(sample, dataset), **heldout(dataset)}
    tables = given_answers(source or Path(model.path), rows, sample.prompt, f"likelihood {name}")
    counts = []
    with atomic_folder(root / "likelihood" / name) as folder:
        for split, table in tables.items():
            write_parquet(folder / f"{split}.parquet", table)
            counts.append(f"{split} {len(table)}")
    print(f"{name}: given answers read:", ", ".join(counts))
