"""From finished shards to the result of a meta-evaluation: result.json, the page, and a table of every number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.atomic import SCHEMA_VERSION, atomic_folder, write_text
from lethe.io.json_files import write_json
from lethe.io.tables import write_parquet
from lethe.progress import progress
from studies.meta_evaluation.shards import ModelNumbers, ShardResult, Shards, State
from studies.meta_evaluation.worth import (
    Cost,
    MetaResult,
    PoolMember,
    RetrainMember,
    UnlearnedMember,
    meta_result,
)

if TYPE_CHECKING:
    import pandas as pd

    from studies.meta_evaluation.knowledge import Number

OUT = Path("data/meta")


def gather(shards: Shards) -> tuple[MetaResult, list[ShardResult]]:
    """Read every shard, working what is missing, and evaluate all numbers."""
    names = list(shards.workshop.models)
    found = [shards.work(name) for name in progress(names, "numbers", "models")]
    return evaluate(shards, found), found


def evaluate(shards: Shards, found: list[ShardResult]) -> MetaResult:
    """The result of finished shards."""
    shop = shards.workshop
    by_name = {one.model: one for one in found}
    models = {model.name: model for model in shop.models.values()}
    pool = [
        PoolMember(name, model.kind, shop.knows(model), plain.utility, plain.numbers)
        for name, model in models.items()
        if model.role in ("knows", "lacks")
        for plain in (by_name[name].states["plain"],)
    ]
    unlearned = [
        UnlearnedMember(
            name=name,
            method=model.kind,
            utility=by_name[name].states["plain"].utility,
            before=by_name[name].states["plain"].numbers,
            relearned=_numbers(by_name[name], "relearned"),
            quantised=_numbers(by_name[name], "quantised"),
            comes_back=by_name[name].comes_back,
        )
        for name, model in models.items()
        if model.role == "unlearned"
    ]
    states = by_name["retrain"].states
    before_unlearning = by_name[shop.base.name].states["plain"].utility
    retrain = RetrainMember(states["plain"].numbers, states["relearned"].numbers, before_unlearning)
    observed = [by_name[member.name].states["plain"] for member in pool]
    return meta_result(pool, unlearned, retrain, costs_of(observed), shop.meta)


def _numbers(shard: ShardResult, state: State) -> Mapping[str, Number]:
    """The numbers of a model in a state; empty where it was not attacked, because it counts in no R and Q."""
    return shard.states[state].numbers if state in shard.states else {}


def costs_of(observed: Iterable[ModelNumbers]) -> dict[str, Cost]:
    """The mean cost of each observation over models."""
    seconds: dict[str, list[float]] = {}
    rows: dict[str, list[float]] = {}
    for one in observed:
        for part, value in one.seconds.items():
            seconds.setdefault(part, []).append(value)
            rows.setdefault(part, []).append(one.rows[part])
    return {part: Cost(float(np.mean(seconds[part])), float(np.mean(rows[part]))) for part in seconds}


def table_of(found: Iterable[ShardResult], roles: Mapping[str, str]) -> pd.DataFrame:
    """One row per model, state and number: the value as printed, and the value that is larger for more knowledge."""
    import pandas as pd

    def rows() -> Iterator[tuple[object, ...]]:
        for shard in found:
            for state, numbers in shard.states.items():
                for one in numbers.numbers.values():
                    yield shard.model, roles[shard.model], state, one.name, one.value, one.knows

    return pd.DataFrame(rows(), columns=["model", "role", "state", "number", "value", "knows"])


def write(name: str, shards: Shards, result: MetaResult, found: list[ShardResult], root: Path = Path()) -> Path:
    """Write result.json, numbers.parquet and index.html of a meta-evaluation; return the folder."""
    from lethe.report import provenance
    from studies.meta_evaluation.page import page

    made_by = provenance.collect(root)
    place = root / OUT / name
    roles = {model.name: model.role for model in shards.workshop.models.values()}
    with atomic_folder(place) as folder:
        settings = shards.workshop.meta.model_dump(mode="json")
        write_json(
            folder / "result.json",
            {
                "schema": SCHEMA_VERSION,
                "name": name,
                "settings": settings,
                "provenance": made_by,
                **result.as_json(),
            },
        )
        write_parquet(folder / "numbers.parquet", table_of(found, roles))
        write_text(folder / "index.html", page(name, result, shards.workshop.meta.headline, made_by))
    return place
