"""A meta-evaluation whole: each model made, observed, relearned and observed again, its numbers, and the result.

The models are independent once Retrain and the model that is unlearned are done, so processes share them. Every finished
model and observation stays under the hash of what decides it: a second call repeats none, and a killed one continues.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.audits import in_processes
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder, write_text
from lethe.io.json_files import write_json
from lethe.io.tables import write_parquet
from studies.meta_evaluation.numbers import Seen, numbers
from studies.meta_evaluation.observing import Observation
from studies.meta_evaluation.workshop import PoolModel, Workshop
from studies.meta_evaluation.worth import Member, MetaResult, Target

if TYPE_CHECKING:
    import pandas as pd

OUT = Path("data/meta")


class Work:
    """The work on the models of one workshop; a finished part is read, an unfinished one is done."""

    def __init__(self, workshop: Workshop):
        self.workshop = workshop

    def member(self, name: str) -> Member:
        shop = self.workshop
        model = shop.models[name]
        seen, utility = Observation(shop, model).seen()
        values = numbers(seen, self._retrain, shop.params)
        back = self.comes_back(model) if model.role == "unlearned" else {}
        return Member(name, model.role, model.kind, shop.knows(model), utility, values, seen.work, back)

    @cached_property
    def _retrain(self) -> Seen:
        return Observation(self.workshop, self.workshop.models["retrain"]).seen()[0]

    def comes_back(self, model: PoolModel) -> dict[Target, float]:
        """The mean scores after relearning a few rows, by target: means over the draws of these rows."""
        metrics = self.workshop.params.metrics
        targets: dict[Target, str] = {"mean": metrics.leak}
        if metrics.binary:
            targets = {"leaks": metrics.binary, "mean": metrics.leak}
        draws = [
            Observation(self.workshop, model, draw).comes_back(list(targets.values()))
            for draw in range(self.workshop.meta.predict.draws)
        ]
        return {target: float(np.mean([one[name] for one in draws])) for target, name in targets.items()}


def gather(workshop: Workshop, at_once: int = 1) -> list[Member]:
    """Work all models, ``at_once`` at a time."""
    shop = pickle.dumps((workshop.params, workshop.scratch))
    first = ["retrain", workshop.base.name]  # which all others read
    rest = [name for name in workshop.models if name not in first]
    members = in_processes(_work_one, [(shop, name) for name in first], "models", 1)
    members += in_processes(_work_one, [(shop, name) for name in rest], "models", at_once)
    by_name = {one.name: one for one in members}
    return [by_name[name] for name in workshop.models]


def _work_one(shop: bytes, name: str) -> Member:
    return _opened(shop).member(name)


@lru_cache(maxsize=1)  # a process reads the data and Retrain once for all its models
def _opened(shop: bytes) -> Work:
    return Work(Workshop(*pickle.loads(shop)))


def table_of(members: Sequence[Member]) -> pd.DataFrame:
    """One row per model and number: the value as printed, and the value that is larger for more knowledge."""
    import pandas as pd

    def rows() -> Iterator[tuple[str, str, str, float, float]]:
        for member in members:
            for one in member.numbers.values():
                yield member.name, member.role, one.name, one.value, one.knows

    return pd.DataFrame(rows(), columns=["model", "role", "number", "value", "knows"])


def write(name: str, shop: Workshop, result: MetaResult, members: Sequence[Member], root: Path = Path()) -> Path:
    from lethe.report.page import provenance
    from studies.meta_evaluation.page import page

    made_by = provenance(root)
    place = root / OUT / name
    with atomic_folder(place) as folder:
        about = {"name": name, "settings": shop.meta.model_dump(mode="json"), "provenance": made_by}
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **about, **asdict(result)})
        write_parquet(folder / "numbers.parquet", table_of(members))
        write_text(folder / "index.html", page(name, result, shop.meta.headline, made_by))
    return place
