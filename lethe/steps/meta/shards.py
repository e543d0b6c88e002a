"""One shard of a meta-evaluation: one model, made, observed, attacked, observed again, and all its numbers.

The shards are independent once Retrain is done, so a flow runs them anywhere. Each number of a model needs a few
observations, and all numbers share them: a process per model and number would repeat the observations or only start, load
and write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.evaluation.knowledge import Asking, Number, Seen, numbers
from lethe.io.atomic import SCHEMA_VERSION
from lethe.io.cache import cache_key, digest, module_of
from lethe.io.json_files import write_json
from lethe.io.schema import read_artifact
from lethe.registry import JUDGES, KNOWLEDGE, LIKELIHOODS, SCORERS
from lethe.steps.meta.observing import Observed, Observer
from lethe.steps.meta.pool import PoolModel
from lethe.steps.meta.workshop import Workshop, seed_for

if TYPE_CHECKING:
    from lethe.config import Params
    from lethe.models.in_memory import InMemory

State = Literal["plain", "relearned", "quantised"]
ATTACKED: tuple[State, ...] = ("relearned", "quantised")
INFINITE = {"inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True)
class ModelNumbers:
    """The numbers of one model in one state, its utility, and the work of its observations by name."""

    model: str
    state: State
    utility: float
    numbers: Mapping[str, Number]
    seconds: Mapping[str, float]
    rows: Mapping[str, float]


@dataclass(frozen=True)
class ShardResult:
    """Everything of one model; ``comes_back`` is the leakage after relearning a few rows, NaN for a model of a pool."""

    model: str
    states: Mapping[State, ModelNumbers]
    comes_back: float


def asking_of(params: Params, workshop: Workshop) -> Asking:
    """The settings of the numbers."""
    exact = params.exact
    return Asking(
        answers=workshop.meta.answers,
        leak_at=workshop.meta.leak_at,
        metrics=params.metrics,
        epsilon_star=params.epsilon_star,
        tree_ratio=exact.ratio if exact else 10.0,
        tree_alpha=exact.alpha if exact else 0.01,
    )


class Shards:
    """The shards of one meta-evaluation; a finished shard is read, an unfinished one is worked."""

    def __init__(self, params: Params, workshop: Workshop | None = None):
        self.params = params
        self.workshop = workshop or Workshop(params)
        self.asking = asking_of(params, self.workshop)
        self._retrain: Observed | None = None

    @property
    def first(self) -> list[str]:
        """The models that all others need: the one that is unlearned, and Retrain."""
        return [self.workshop.base.name, "retrain"]

    @property
    def rest(self) -> list[str]:
        """All other models."""
        return [name for name in self.workshop.models if name not in self.first]

    def work(self, name: str) -> ShardResult:
        """Make, observe and attack one model; return its numbers."""
        model = self.workshop.models[name]
        states: dict[State, ModelNumbers] = {"plain": self._numbers(model, "plain")}
        if model.role in ("unlearned", "retrain"):
            for state in ATTACKED:
                states[state] = self._numbers(model, state)
        back = self._comes_back(model) if model.role == "unlearned" else math.nan
        return ShardResult(name, states, back)

    def _observe(self, model: PoolModel, state: State) -> Observed:
        shop = self.workshop
        if state == "plain":
            return Observer(shop, shop.key(model), lambda: shop.make(model)).observe(model.name)
        settings = shop.meta.relearn if state == "relearned" else shop.meta.quantise
        attack = shop.relearned if state == "relearned" else shop.quantised

        def attacked() -> InMemory:
            return attack(shop.make(model), seed_for(model))

        return Observer(shop, shop.attack_key(model, state, settings), attacked).observe(model.name)

    def _reference(self) -> Seen:
        if self._retrain is None:
            self._retrain = self._observe(self.workshop.models["retrain"], "plain")
        return self._retrain.seen

    def _numbers(self, model: PoolModel, state: State) -> ModelNumbers:
        observed = self._observe(model, state)
        place = self._place(observed.seen, f"{model.name}-{state}")
        registered = KNOWLEDGE.registered or LIKELIHOODS.registered  # such a member is known to this process alone
        if place.is_file() and not registered:
            found = read_numbers(place)
        else:
            found = numbers(observed.seen, self._reference(), self.asking)
            write_numbers(place, found)
        work = observed.seen.work
        return ModelNumbers(
            model.name,
            state,
            observed.utility,
            found,
            {part: one.seconds for part, one in work.items()},
            {part: one.rows for part, one in work.items()},
        )

    def _place(self, seen: Seen, name: str) -> Path:
        """The file of a model's numbers; what was observed decides it, by content."""
        members = [module_of(KNOWLEDGE[member]) for member in KNOWLEDGE if member not in KNOWLEDGE.registered]
        key = cache_key(
            *members,
            settings=[self.asking, self.params.score],
            observed=[_content(seen), _content(self._reference())],
            foreign=list(KNOWLEDGE),
        )
        return self.workshop.folder / "numbers" / f"{name}-{key}.json"

    def _comes_back(self, model: PoolModel) -> float:
        shop, own = self.workshop, self.workshop.meta.predict
        scorer = self.params.metrics.binary or self.params.metrics.leak
        judge = module_of(JUDGES[scorer] if scorer in JUDGES else SCORERS[scorer])
        key = shop.attack_key(
            model,
            "few",
            [own, self.asking.metrics, shop.sample, self.params.score],
            "lethe.steps.meta.observing",
            "lethe.sampling.prefix_engine",
            judge,
        )
        place = shop.folder / "back" / f"{key}.json"
        if not place.is_file():
            attacked, learned = shop.relearned_few(shop.make(model), seed_for(model))
            value = Observer(shop, key, lambda: attacked).comes_back(learned, own.n, scorer)
            write_json(place, {"schema": SCHEMA_VERSION, "value": value})
        found = read_artifact(place)["value"]
        return math.nan if found is None else float(found)


def _content(seen: Seen) -> str:
    tables = [seen.scores, *(seen.likelihoods[split] for split in sorted(seen.likelihoods))]
    return digest(
        *(table.to_json(orient="values", double_precision=15) for table in tables),
        seen.trees.as_json() if seen.trees else None,
    )


def write_numbers(place: Path, found: Mapping[str, Number]) -> None:
    """Write numbers as JSON; infinite values are the texts "inf" and "-inf", a missing value is null."""
    rows = [
        {
            "name": one.name,
            "value": _plain(one.value),
            "knows": _plain(one.knows),
            "parts": list(one.parts),
            "each": {key: _plain(value) for key, value in one.each.items()},
        }
        for one in found.values()
    ]
    write_json(place, {"schema": SCHEMA_VERSION, "numbers": rows})


def read_numbers(place: Path) -> dict[str, Number]:
    """Read what `write_numbers` wrote."""
    rows = read_artifact(place)["numbers"]
    return {
        row["name"]: Number(
            row["name"],
            _value(row["value"]),
            _value(row["knows"]),
            tuple(row["parts"]),
            {key: _value(value) for key, value in row["each"].items()},
        )
        for row in rows
    }


def _plain(value: float) -> float | str | None:
    return None if math.isnan(value) else str(float(value)) if math.isinf(value) else float(value)


def _value(given: float | str | None) -> float:
    return math.nan if given is None else INFINITE[given] if isinstance(given, str) else float(given)
