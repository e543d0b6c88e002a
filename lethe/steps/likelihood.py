"""Stage `likelihood@MODEL`: the model's likelihood of the dataset's answers, token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import plural
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.cache import cache_key, content_digest, versions
from lethe.io.json_files import write_json
from lethe.io.schema import read_artifact
from lethe.io.shards import Shard, found, place_of
from lethe.io.tables import read_table, write_parquet

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import Model, Sample
    from lethe.io.artifacts import Row
    from lethe.models.in_memory import Source


def run(
    name: str,
    sample: Sample,
    model: Model,
    root: Path = Path("data"),
    source: Source | None = None,
    shard: Shard | None = None,
) -> None:
    """Write the likelihood of the answers of all sampled and held-out rows to ``root/likelihood/name``.

    The function reads from ``sample`` the prompt and the choice of rows (``utility_questions``, ``seed``); the sampling
    settings change no likelihood. ``source`` is a model that replaces the folder ``model.path``. With ``shard``, only that
    shard's batches are computed, into ``root/shards/likelihood``. Without it, the batches of the shards that are there are
    taken.
    """
    from lethe.models.checkpoints import prepare_torch
    from lethe.models.given_answers import given_answers
    from lethe.sampling.asked import chosen, heldout

    prepare_torch()
    dataset = root / "dataset"
    rows = {**chosen(sample, dataset), **heldout(dataset)}
    source = source or Path(model.path)
    known: dict[str, pd.DataFrame] = {}
    key = ""
    shards = found(root, "likelihood", name) if shard is None else {}
    if isinstance(source, Path) and (shard is not None or shards):
        key = _key(source, rows, sample.prompt)
        known = _known(list(shards.values()), key)
    tables = given_answers(source, rows, sample.prompt, f"likelihood {name}", shard, known)
    place = root / "likelihood" / name if shard is None else place_of(root, "likelihood", name, shard)
    with atomic_folder(place) as folder:
        for split, table in tables.items():
            write_parquet(folder / f"{split}.parquet", table)
        if shard is not None:
            write_json(folder / "about.json", {"schema": SCHEMA_VERSION, "key": key})
    print(", ".join(f"{split} {plural(len(table), 'given answer')}" for split, table in tables.items()))


def _key(source: Path, rows: Mapping[str, Sequence[Row]], prompt: str) -> str:
    """The key of everything that determines the likelihoods."""
    from lethe.models.adapters import whole
    from lethe.models.checkpoints import default_device

    template = Path(prompt)
    return cache_key(
        "lethe.models.given_answers",
        model=content_digest(whole(source)),
        rows=rows,
        prompt=template.read_text(encoding="utf-8") if template.is_file() else prompt,
        libraries=versions("torch", "transformers", "tokenizers"),
        device=default_device(),
    )


def _known(folders: Sequence[Path], key: str) -> dict[str, pd.DataFrame]:
    """The rows of the shards with this key, by split."""
    import pandas as pd

    held = [folder for folder in folders if read_artifact(folder / "about.json")["key"] == key]
    tables: dict[str, list[pd.DataFrame]] = {}
    for folder in held:
        for path in sorted(folder.glob("*.parquet")):
            tables.setdefault(path.stem, []).append(read_table(path))
    return {split: pd.concat(parts, ignore_index=True) for split, parts in tables.items()}
