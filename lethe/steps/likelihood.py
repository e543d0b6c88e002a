"""Stage `likelihood@MODEL`: the model's likelihood of the dataset's answers, token by token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import plural
from lethe.io.atomic import atomic_folder
from lethe.io.tables import write_parquet

if TYPE_CHECKING:
    from lethe.config.evaluating import Model, Sample
    from lethe.models.in_memory import Source


def run(
    name: str,
    sample: Sample,
    model: Model,
    root: Path = Path("data"),
    source: Source | None = None,
) -> None:
    """Write the likelihood of the answers of all sampled and held-out rows to ``root/likelihood/name``.

    The function reads from ``sample`` the prompt and the choice of rows (``utility_questions``, ``seed``); the sampling
    settings change no likelihood. ``source`` is a model that replaces the folder ``model.path``.
    """
    from lethe.models.checkpoints import prepare_torch
    from lethe.models.likelihood import given_answers
    from lethe.sampling.tasks import chosen, heldout

    prepare_torch()
    dataset = root / "dataset"
    rows = {**chosen(sample, dataset), **heldout(dataset)}
    tables = given_answers(source or Path(model.path), rows, sample.prompt, f"likelihood {name}")
    with atomic_folder(root / "likelihood" / name) as folder:
        for split, table in tables.items():
            write_parquet(folder / f"{split}.parquet", table)
    print(", ".join(f"{split} {plural(len(table), 'given answer')}" for split, table in tables.items()))
