"""One shard of a meta-evaluation: one model, made, observed, attacked, observed again, and all its numbers.

The shards are independent once Retrain is done, so a flow runs them anywhere. Each number of a model needs a few
observations, and all numbers share them: a process per model and number would repeat the observations or only start, load
and write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from lethe.io.atomic import SCHEMA_VERSION
from lethe.io.cache import cache_key, digest, module_of
from lethe.io.json_files import read_artifact, write_json
from lethe.registry import JUDGES, LIKELIHOODS, SCORERS
from lethe.steps.costs import processor_seconds
from studies.meta_evaluation.knowledge import Asking, Number, Seen, numbers
from studies.meta_evaluation.observing import Observed, Observer
from studies.meta_evaluation.pool import PoolModel, seed_of
from studies.meta_evaluation.workshop import Workshop, seed_for
from studies.meta_evaluation.worth import Target
from studies.registry import KNOWLEDGE

if TYPE_CHECKING:
    from lethe.models.in_memory import InMemory
    from studies.meta_evaluation.settings import MetaParams

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
class Back:
    """What one draw of relearned rows brings back: mean scores of the other questions by scorer; processor seconds."""

    values: Mapping[str, float]
    seconds: float


@dataclass(frozen=True)
class ShardResult:
    """Everything of one model; ``comes_back``: the leakage after relearning a few rows by target, only if unlearned.

    ``states`` has the attacked states of Retrain and of the unlearned models of sufficient utility.
    """

    model: str
    states: Mapping[State, ModelNumbers]
    comes_back: Mapping[Target, float]


def asking_of(params: MetaParams, workshop: Workshop) -> Asking:
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

    def __init__(self, params: MetaParams, workshop: Workshop | None = None):
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
        if model.role == "retrain" or (model.role == "unlearned" and self.useful(states["plain"].utility)):
            for state in ATTACKED:
                states[state] = self._numbers(model, state)
        back = self._comes_back(model) if model.role == "unlearned" else {}
        return ShardResult(name, states, back)

    def useful(self, utility: float) -> bool:
        """Whether an unlearned model of this utility counts in R and Q; the others are not attacked."""
        return utility >= self.workshop.meta.unlearned.utility * self._utility_before

    @cached_property
    def _utility_before(self) -> float:
        return self.observe(self.workshop.base, "plain").utility

    def observe(self, model: PoolModel, state: State) -> Observed:
        """All observations of a model in a state, each made where it is missing."""
        shop = self.workshop
        if state == "plain":
            return Observer(shop, shop.key(model), lambda: shop.make(model), self.seed(model, state)).observe(
                model.name
            )
        settings = shop.meta.relearn if state == "relearned" else shop.meta.quantise
        attack = shop.relearned if state == "relearned" else shop.quantised

        def attacked() -> InMemory:
            return attack(shop.make(model), seed_for(model))

        key = shop.attack_key(model, state, settings)
        return Observer(shop, key, attacked, self.seed(model, state)).observe(model.name)

    def seed(self, model: PoolModel, state: str) -> int:
        """The seed of the draws of a model in a state: another one for each, and for each run on fresh seeds."""
        return seed_of(self.params.sample.seed, f"{model.seed} {model.name} {state}") % (1 << 31)

    def _reference(self) -> Seen:
        if self._retrain is None:
            self._retrain = self.observe(self.workshop.models["retrain"], "plain")
        return self._retrain.seen

    def _numbers(self, model: PoolModel, state: State) -> ModelNumbers:
        observed = self.observe(model, state)
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

    @property
    def targets(self) -> dict[Target, str]:
        """The scorers whose mean after relearning a few rows is what comes back."""
        own = self.params.metrics
        return {"leaks": own.binary, "mean": own.leak} if own.binary else {"mean": own.leak}

    def _comes_back(self, model: PoolModel) -> dict[Target, float]:
        """Means over the draws of relearned rows."""
        each = [self.back(model, draw).values for draw in range(self.workshop.meta.predict.draws)]
        return {target: float(np.mean([one[name] for one in each])) for target, name in self.targets.items()}

    def back(self, model: PoolModel, draw: int) -> Back:
        """Relearn one draw of a few rows and ask the other questions, where that is not done yet."""
        shop, own, scorers = self.workshop, self.workshop.meta.predict, list(self.targets.values())
        judges = [module_of(JUDGES[scorer] if scorer in JUDGES else SCORERS[scorer]) for scorer in scorers]
        seed = self.seed(model, f"few {draw}")
        key = shop.attack_key(
            model,
            f"few {draw}",
            [own, seed, scorers, shop.sample, self.params.score],
            "studies.meta_evaluation.observing",
            "lethe.sampling.prefix_engine",
            *judges,
        )
        place = shop.folder / "back" / f"{key}.json"
        if not place.is_file():
            began = processor_seconds()
            attacked, learned = shop.relearned_few(shop.make(model), seed_for(model, draw))
            values = Observer(shop, key, lambda: attacked, seed).comes_back(learned, own.n, scorers)
            kept = {scorer: _plain(value) for scorer, value in values.items()}
            seconds = processor_seconds() - began
            write_json(place, {"schema": SCHEMA_VERSION, "seconds": seconds, "values": kept})
        found = read_artifact(place)
        return Back({scorer: _value(value) for scorer, value in found["values"].items()}, float(found["seconds"]))


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
            "larger": one.larger,
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
            row["larger"],
        )
        for row in rows
    }


def _plain(value: float) -> float | str | None:
    return None if math.isnan(value) else str(float(value)) if math.isinf(value) else float(value)


def _value(given: float | str | None) -> float:
    return math.nan if given is None else INFINITE[given] if isinstance(given, str) else float(given)
