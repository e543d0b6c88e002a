"""A meta-evaluation whole: each model made, observed, attacked and observed again, all its numbers, and the result.

The models are independent once Retrain and the model that is unlearned are done, so processes share them. Every finished
model and observation stays under the hash of what decides it: a second call repeats nothing, and a killed one continues.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.audits import in_processes
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder, write_text
from lethe.io.cache import cache_key, module_of
from lethe.io.json_files import write_json
from lethe.io.tables import write_parquet
from lethe.registry import LIKELIHOODS
from studies.meta_evaluation.numbers import KNOWLEDGE, Cost, Number, Seen, numbers
from studies.meta_evaluation.observing import Observation
from studies.meta_evaluation.workshop import PoolModel, State, Workshop
from studies.meta_evaluation.worth import (
    MetaResult,
    PoolMember,
    RetrainMember,
    Target,
    UnlearnedMember,
    meta_result,
)

if TYPE_CHECKING:
    import pandas as pd

ATTACKED: tuple[State, ...] = ("relearned", "quantised")
OUT = Path("data/meta")


@dataclass(frozen=True)
class ModelNumbers:
    """The numbers of one model in one state, its utility, and the cost of its observations by name."""

    utility: float
    numbers: Mapping[str, Number]
    costs: Mapping[str, Cost]


@dataclass(frozen=True)
class ModelResult:
    """Everything of one model; ``comes_back``: the leakage after relearning a few rows by target, only if unlearned.

    ``states`` has the attacked states of Retrain and of the unlearned models of sufficient utility.
    """

    model: str
    states: Mapping[State, ModelNumbers]
    comes_back: Mapping[Target, float]


class Work:
    """The work on the models of one workshop; a finished part is read, an unfinished one is done."""

    def __init__(self, workshop: Workshop):
        self.workshop, self.params = workshop, workshop.params

    def model(self, name: str) -> ModelResult:
        model = self.workshop.models[name]
        states: dict[State, ModelNumbers] = {"plain": self.numbers(model, "plain")}
        if model.role == "retrain" or (model.role == "unlearned" and self.useful(states["plain"].utility)):
            states |= {state: self.numbers(model, state) for state in ATTACKED}
        return ModelResult(name, states, self.comes_back(model) if model.role == "unlearned" else {})

    def useful(self, utility: float) -> bool:
        """Whether an unlearned model of this utility counts in R and Q; the others are not attacked."""
        return utility >= self.workshop.meta.unlearned.utility * self._utility_before

    @cached_property
    def _utility_before(self) -> float:
        return self.numbers(self.workshop.base, "plain").utility

    @cached_property
    def _retrain(self) -> tuple[str, Seen]:
        observation = Observation(self.workshop, self.workshop.models["retrain"], "plain")
        return observation.root.name, observation.seen()[0]

    def numbers(self, model: PoolModel, state: State) -> ModelNumbers:
        """The numbers of a model in a state, computed from its observation and Retrain's."""
        params, meta = self.params, self.workshop.meta
        settings = [params.metrics, params.epsilon_star, params.exact, meta.answers, meta.leak_at]
        observation = Observation(self.workshop, model, state)
        seen, utility = observation.seen()
        key = cache_key(
            "studies.meta_evaluation.numbers",
            *(module_of(KNOWLEDGE[name]) for name in KNOWLEDGE if name not in KNOWLEDGE.registered),
            settings=settings,
            observed=[observation.root.name, self._retrain[0]],
            foreign=list(KNOWLEDGE),
        )
        place = self.workshop.folder / "numbers" / f"{key}.json"
        # The code of a member that a program registers is in no key.
        if KNOWLEDGE.registered or LIKELIHOODS.registered or not place.is_file():
            write_numbers(place, numbers(seen, self._retrain[1], params))
        return ModelNumbers(utility, read_numbers(place), seen.work)

    def comes_back(self, model: PoolModel) -> dict[Target, float]:
        """The mean scores after relearning a few rows, by target: means over the draws of these rows."""
        metrics = self.params.metrics
        targets: dict[Target, str] = {"mean": metrics.leak}
        if metrics.binary:
            targets = {"leaks": metrics.binary, "mean": metrics.leak}
        draws = [
            Observation(self.workshop, model, "few", draw).comes_back(list(targets.values()))
            for draw in range(self.workshop.meta.predict.draws)
        ]
        return {target: float(np.mean([one[name] for one in draws])) for target, name in targets.items()}


def write_numbers(place: Path, values: Mapping[str, Number]) -> None:
    """Write numbers as JSON for this module alone: Python's reader knows NaN and Infinity."""
    write_text(place, json.dumps([asdict(one) for one in values.values()]))


def read_numbers(place: Path) -> dict[str, Number]:
    rows = json.loads(place.read_text(encoding="utf-8"))
    return {row["name"]: Number(**row | {"parts": tuple(row["parts"])}) for row in rows}


def gather(workshop: Workshop, at_once: int = 1) -> tuple[MetaResult, list[ModelResult]]:
    """Work all models, ``at_once`` at a time, and evaluate all numbers."""
    shop = pickle.dumps((workshop.params, workshop.scratch))
    first = ["retrain", workshop.base.name]  # which all others read
    rest = [name for name in workshop.models if name not in first]
    results = in_processes(_work_one, [(shop, name) for name in first], "models", 1)
    results += in_processes(_work_one, [(shop, name) for name in rest], "models", at_once)
    by_name = {one.model: one for one in results}
    in_order = [by_name[name] for name in workshop.models]
    return evaluate(workshop, in_order), in_order


def _work_one(shop: bytes, name: str) -> ModelResult:
    return _opened(shop).model(name)


@lru_cache(maxsize=1)  # a process reads the data and Retrain once for all its models
def _opened(shop: bytes) -> Work:
    return Work(Workshop(*pickle.loads(shop)))


def evaluate(shop: Workshop, results: Sequence[ModelResult]) -> MetaResult:
    by_name = {one.model: one for one in results}
    pool, unlearned = [], []
    for name, model in shop.models.items():
        states = by_name[name].states
        plain = states["plain"]
        if model.role in ("knows", "lacks"):
            pool.append(PoolMember(name, model.kind, shop.knows(model), plain.utility, plain.numbers))
        elif model.role == "unlearned":
            # A model that counts in no R and Q was not attacked.
            attacked = [states[state].numbers if state in states else {} for state in ATTACKED]
            back = by_name[name].comes_back
            relearned, quantised = attacked
            unlearned.append(
                UnlearnedMember(name, model.kind, plain.utility, plain.numbers, relearned, quantised, back)
            )
    states = by_name["retrain"].states
    before_unlearning = by_name[shop.base.name].states["plain"].utility
    retrain = RetrainMember(states["plain"].numbers, states["relearned"].numbers, before_unlearning)
    costs = _costs([by_name[member.name].states["plain"].costs for member in pool])
    return meta_result(pool, unlearned, retrain, costs, shop.meta)


def _costs(observed: Sequence[Mapping[str, Cost]]) -> dict[str, Cost]:
    means: dict[str, Cost] = {}
    for part in dict.fromkeys(part for one in observed for part in one):
        costs = [one[part] for one in observed if part in one]
        means[part] = Cost(
            float(np.mean([cost.seconds for cost in costs])), float(np.mean([cost.rows for cost in costs]))
        )
    return means


def table_of(shop: Workshop, results: Sequence[ModelResult]) -> pd.DataFrame:
    """One row per model, state and number: the value as printed, and the value that is larger for more knowledge."""
    import pandas as pd

    def rows() -> Iterator[tuple[object, ...]]:
        for result in results:
            role = shop.models[result.model].role
            for state, observed in result.states.items():
                for one in observed.numbers.values():
                    yield result.model, role, state, one.name, one.value, one.knows

    return pd.DataFrame(rows(), columns=["model", "role", "state", "number", "value", "knows"])


def write(
    name: str, shop: Workshop, result: MetaResult, results: Sequence[ModelResult], root: Path = Path()
) -> Path:
    from lethe.report.page import provenance
    from studies.meta_evaluation.page import page

    made_by = provenance(root)
    place = root / OUT / name
    with atomic_folder(place) as folder:
        about = {"name": name, "settings": shop.meta.model_dump(mode="json"), "provenance": made_by}
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **about, **result.as_json()})
        write_parquet(folder / "numbers.parquet", table_of(shop, results))
        write_text(folder / "index.html", page(name, result, shop.meta.headline, made_by))
    return place
