"""The work of a meta-evaluation: each model made, observed, attacked, observed again, all its numbers, and the result.

The models are independent once Retrain and the model that is unlearned are done, so processes share them. Every finished
part is kept under the hash of what decides it: a second call repeats nothing, and a killed one continues.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from lethe.audits.finished_models import in_processes
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder, write_text
from lethe.io.cache import cache_key, digest, module_of
from lethe.io.json_files import write_json
from lethe.io.tables import write_parquet
from lethe.registry import JUDGES, LIKELIHOODS, SCORERS
from studies.meta_evaluation.numbers import KNOWLEDGE, Asking, Number, Seen, numbers
from studies.meta_evaluation.observing import Observed, Observer
from studies.meta_evaluation.pool import PoolModel, seed_of
from studies.meta_evaluation.workshop import Workshop, seed_for
from studies.meta_evaluation.worth import (
    Cost,
    MetaResult,
    PoolMember,
    RetrainMember,
    Target,
    UnlearnedMember,
    meta_result,
)

if TYPE_CHECKING:
    import pandas as pd

    from lethe.models.in_memory import InMemory

State = Literal["plain", "relearned", "quantised"]
ATTACKED: tuple[State, ...] = ("relearned", "quantised")
OUT = Path("data/meta")


@dataclass(frozen=True)
class ModelNumbers:
    """The numbers of one model in one state, its utility, and the work of its observations by name."""

    utility: float
    numbers: Mapping[str, Number]
    seconds: Mapping[str, float]
    rows: Mapping[str, float]


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
        exact, meta = self.params.exact, workshop.meta
        self.asking = Asking(
            answers=meta.answers,
            leak_at=meta.leak_at,
            metrics=self.params.metrics,
            epsilon_star=self.params.epsilon_star,
            tree_ratio=exact.ratio if exact else 10.0,
            tree_alpha=exact.alpha if exact else 0.01,
        )

    def model(self, name: str) -> ModelResult:
        """Make, observe and attack one model; return its numbers."""
        model = self.workshop.models[name]
        states: dict[State, ModelNumbers] = {"plain": self._numbers(model, "plain")}
        if model.role == "retrain" or (model.role == "unlearned" and self.useful(states["plain"].utility)):
            for state in ATTACKED:
                states[state] = self._numbers(model, state)
        back = self._comes_back(model) if model.role == "unlearned" else {}
        return ModelResult(name, states, back)

    def useful(self, utility: float) -> bool:
        """Whether an unlearned model of this utility counts in R and Q; the others are not attacked."""
        return utility >= self.workshop.meta.unlearned.utility * self._utility_before

    @cached_property
    def _utility_before(self) -> float:
        return self.observe(self.workshop.base, "plain").utility

    def observe(self, model: PoolModel, state: State) -> Observed:
        """All observations of a model in a state, each made where it is missing."""
        shop, seed = self.workshop, self.seed(model, state)
        if state == "plain":
            return Observer(shop, shop.key(model), lambda: shop.make(model), seed).observe(model.name)
        settings = shop.meta.relearn if state == "relearned" else shop.meta.quantise
        attack = shop.relearned if state == "relearned" else shop.quantised

        def attacked() -> InMemory:
            return attack(shop.make(model), seed_for(model))

        return Observer(shop, shop.attack_key(model, state, settings), attacked, seed).observe(model.name)

    def seed(self, model: PoolModel, state: str) -> int:
        """The seed of the draws of a model in a state: another one for each, and for each run on fresh seeds."""
        return seed_of(self.params.sample.seed, f"{model.seed} {model.name} {state}") % (1 << 31)

    @cached_property
    def _retrain(self) -> Seen:
        return self.observe(self.workshop.models["retrain"], "plain").seen

    def _numbers(self, model: PoolModel, state: State) -> ModelNumbers:
        observed = self.observe(model, state)
        key = cache_key(
            "studies.meta_evaluation.numbers",
            *(module_of(KNOWLEDGE[name]) for name in KNOWLEDGE if name not in KNOWLEDGE.registered),
            settings=[self.asking, self.params.score],
            observed=[_content(observed.seen), _content(self._retrain)],  # by content, whatever made it
            foreign=list(KNOWLEDGE),
        )
        place = self.workshop.folder / "numbers" / f"{model.name}-{state}-{key}.json"
        registered = KNOWLEDGE.registered or LIKELIHOODS.registered  # such a member is known to this process alone
        if place.is_file() and not registered:
            values = read_numbers(place)
        else:
            values = numbers(observed.seen, self._retrain, self.asking)
            write_numbers(place, values)
        work = observed.seen.work
        seconds, rows = ({part: getattr(one, of) for part, one in work.items()} for of in ("seconds", "rows"))
        return ModelNumbers(observed.utility, values, seconds, rows)

    def _comes_back(self, model: PoolModel) -> dict[Target, float]:
        """The mean scores after relearning a few rows, by target: means over the draws of these rows."""
        own = self.params.metrics
        targets: dict[Target, str] = {"leaks": own.binary, "mean": own.leak} if own.binary else {"mean": own.leak}
        each = [
            self._back(model, draw, list(targets.values())) for draw in range(self.workshop.meta.predict.draws)
        ]
        return {target: float(np.mean([one[name] for one in each])) for target, name in targets.items()}

    def _back(self, model: PoolModel, draw: int, scorers: list[str]) -> dict[str, float]:
        """Relearn one draw of a few rows and ask the other questions, where that is not done yet."""
        shop, own = self.workshop, self.workshop.meta.predict
        judges = [module_of(JUDGES[scorer] if scorer in JUDGES else SCORERS[scorer]) for scorer in scorers]
        seed, state = self.seed(model, f"few {draw}"), f"few {draw}"
        key = shop.attack_key(
            model,
            state,
            [own, seed, scorers, shop.sample, self.params.score],
            "studies.meta_evaluation.observing",
            "lethe.sampling.prefix_engine",
            *judges,
        )
        place = shop.folder / "back" / f"{key}.json"
        if not place.is_file():
            attacked, learned = shop.relearned_few(shop.make(model), seed_for(model, draw))
            values = Observer(shop, key, lambda: attacked, seed).comes_back(learned, own.n, scorers)
            write_text(place, json.dumps(values))
        return json.loads(place.read_text(encoding="utf-8"))


def _content(seen: Seen) -> str:
    tables = [seen.scores, *(seen.likelihoods[split] for split in sorted(seen.likelihoods))]
    return digest(
        *(table.to_json(orient="values", double_precision=15) for table in tables),
        seen.trees.as_json() if seen.trees else None,
    )


def write_numbers(place: Path, values: Mapping[str, Number]) -> None:
    """Write numbers as JSON for this module alone: Python's reader knows NaN and Infinity."""
    write_text(place, json.dumps([asdict(one) for one in values.values()]))


def read_numbers(place: Path) -> dict[str, Number]:
    """Read what `write_numbers` wrote."""
    rows = json.loads(place.read_text(encoding="utf-8"))
    return {row["name"]: Number(**row | {"parts": tuple(row["parts"])}) for row in rows}


def gather(work: Work, at_once: int = 1) -> tuple[MetaResult, list[ModelResult]]:
    """Work all models, ``at_once`` at a time, and evaluate all numbers."""
    names = list(work.workshop.models)
    first = ["retrain", work.workshop.base.name]  # which all others read
    results = {name: work.model(name) for name in first}
    shop = pickle.dumps((work.params, work.workshop.scratch))
    rest = [name for name in names if name not in first]
    if at_once == 1:  # in this process, which has the data and Retrain's numbers
        others = in_processes(work.model, [(name,) for name in rest], "models", 1)
    else:
        others = in_processes(_work_one, [(shop, name) for name in rest], "models", at_once)
    results |= {one.model: one for one in others}
    in_order = [results[name] for name in names]
    return evaluate(work.workshop, in_order), in_order


def _work_one(shop: bytes, name: str) -> ModelResult:
    """Work a model in a process of its own, which reads the data and Retrain once for all its models."""
    return _opened(shop).model(name)


@lru_cache(maxsize=1)
def _opened(shop: bytes) -> Work:
    return Work(Workshop(*pickle.loads(shop)))


def evaluate(shop: Workshop, results: list[ModelResult]) -> MetaResult:
    """The result of all models' numbers."""
    by_name = {one.model: one for one in results}
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
            utility=own.states["plain"].utility,
            before=own.states["plain"].numbers,
            # empty where the model was not attacked, because it counts in no R and Q
            relearned=own.states["relearned"].numbers if "relearned" in own.states else {},
            quantised=own.states["quantised"].numbers if "quantised" in own.states else {},
            comes_back=own.comes_back,
        )
        for name, model in models.items()
        if model.role == "unlearned"
        for own in (by_name[name],)
    ]
    states = by_name["retrain"].states
    before_unlearning = by_name[shop.base.name].states["plain"].utility
    retrain = RetrainMember(states["plain"].numbers, states["relearned"].numbers, before_unlearning)
    costs = _costs([by_name[member.name].states["plain"] for member in pool])
    return meta_result(pool, unlearned, retrain, costs, shop.meta)


def _costs(observed: list[ModelNumbers]) -> dict[str, Cost]:
    """The mean cost of each observation over models."""
    means: dict[str, Cost] = {}
    for part in dict.fromkeys(part for one in observed for part in one.seconds):
        own = [one for one in observed if part in one.seconds]
        means[part] = Cost(
            *(float(np.mean([getattr(one, of)[part] for one in own])) for of in ("seconds", "rows"))
        )
    return means


def table_of(results: Iterable[ModelResult], roles: Mapping[str, str]) -> pd.DataFrame:
    """One row per model, state and number: the value as printed, and the value that is larger for more knowledge."""
    import pandas as pd

    def rows() -> Iterator[tuple[object, ...]]:
        for model in results:
            for state, of in model.states.items():
                for one in of.numbers.values():
                    yield model.model, roles[model.model], state, one.name, one.value, one.knows

    return pd.DataFrame(rows(), columns=["model", "role", "state", "number", "value", "knows"])


def write(name: str, shop: Workshop, result: MetaResult, results: list[ModelResult], root: Path = Path()) -> Path:
    """Write result.json, numbers.parquet and index.html of a meta-evaluation; return the folder."""
    from lethe.report import provenance
    from studies.meta_evaluation.page import page

    made_by = provenance.collect(root)
    place = root / OUT / name
    roles = {model.name: model.role for model in shop.models.values()}
    with atomic_folder(place) as folder:
        about = {"name": name, "settings": shop.meta.model_dump(mode="json"), "provenance": made_by}
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **about, **result.as_json()})
        write_parquet(folder / "numbers.parquet", table_of(results, roles))
        write_text(folder / "index.html", page(name, result, shop.meta.headline, made_by))
    return place
