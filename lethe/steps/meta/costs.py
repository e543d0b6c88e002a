"""What a meta-evaluation takes: a few models are made, observed, attacked and timed, and the run reuses them.

An untrained model neither ends its answers nor repeats them, so its times say nothing: the model that is unlearned and
Retrain are observed (they come first in a run anyway), and so are two unlearned models, whose answers may be more various.
Times are those of whole observations, with the scoring; both attacks are timed, and a step of each unlearning method.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.steps.costs import processor_seconds
from lethe.steps.meta.pool import PoolModel
from lethe.steps.meta.shards import ATTACKED, Shards

if TYPE_CHECKING:
    from lethe.config import Params
    from lethe.steps.training_costs import Bench


MORE = 4  # epochs of a timed training


@dataclass(frozen=True)
class WorkCost:
    """A kind of work: how often it is done, processor seconds each time, and in all."""

    work: str
    times: int
    seconds_each: float

    @property
    def seconds(self) -> float:
        """Processor seconds in all."""
        return self.times * self.seconds_each


@dataclass(frozen=True)
class MetaPlan:
    """The work of a meta-evaluation, and what a DVC stage per model and number would add for its starts alone."""

    models: int
    numbers: int
    cores: int
    costs: tuple[WorkCost, ...]
    start: float

    @property
    def seconds(self) -> float:
        """Processor seconds in all."""
        return sum(one.seconds for one in self.costs)

    @property
    def wall_seconds(self) -> float:
        """Seconds on all cores, if none waits."""
        return self.seconds / self.cores

    @property
    def stage_seconds(self) -> float:
        """Processor seconds for the starts of one process per observed model and number."""
        return self.models * self.numbers * self.start


def meta_plan(params: Params, cores: int, batch: int, scratch: Path | None = None) -> MetaPlan:
    """Time a few models, their attacks and a step of each method; count everything."""
    from lethe.steps.meta.workshop import SCRATCH, Workshop

    shards = Shards(params, Workshop(params, scratch or SCRATCH))
    shop = shards.workshop
    trained = [model for model in shop.models.values() if model.role != "unlearned" and model.recipe is not None]
    unlearned = [model for model in shop.models.values() if model.role == "unlearned"]
    training = _training(shards, trained)
    pools, few = _timed(shards, shards.first), _timed(shards, _few(unlearned))
    attacked = len(ATTACKED) * (len(unlearned) + 1)
    states = len(shop.models) + attacked
    processes = 2 + -(-len(shards.rest) // batch)
    made = [model for model in unlearned if model.method is not None]
    costs = [
        WorkCost("train a model", len(trained), training),
        WorkCost("unlearn a model", len(made), _unlearning(params, shards, made)),
        WorkCost(
            "observe a model of a pool", len(shop.models) - len(unlearned), _mean(one.observing for one in pools)
        ),
        WorkCost("observe an unlearned model", len(unlearned), _mean(one.observing for one in few)),
        WorkCost("attack a model", attacked, _attacking(shards)),
        # only models of sufficient utility are attacked, and these answer like models
        WorkCost(
            "observe an attacked model", attacked, _mean(one.observing for one in (*few, *pools[:1]) if one.useful)
        ),
        WorkCost(
            "relearn a few rows and ask again",
            len(unlearned) * shop.meta.predict.draws,
            _mean(shards.back(shop.models[one.name], 0).seconds for one in few),
        ),
        WorkCost("compute all numbers of a model", states, max(one.numbering for one in (*pools, *few))),
        WorkCost("start a process", processes, start := _start()),
    ]
    return MetaPlan(states, pools[0].numbers, cores, tuple(one for one in costs if one.times), start)


def _training(shards: Shards, trained: list[PoolModel]) -> float:
    """Mean processor seconds of training a model: Retrain's training is timed, the others are in proportion."""
    if not trained:
        return 0.0
    shop = shards.workshop
    sizes = {model.name: (model.recipe.epochs if model.recipe else 0) * len(shop.rows(model)) for model in trained}
    seconds = trained_in(shards, "retrain")
    return seconds * sum(sizes.values()) / len(sizes) / sizes["retrain"]


def trained_in(shards: Shards, name: str) -> float:
    """Processor seconds of a training, by steps of the finished model's own training timed again."""
    shop = shards.workshop
    model = shop.models[name]
    recipe = model.recipe
    if recipe is None:
        return 0.0
    from lethe.models import checkpoints
    from lethe.models.learning import learn

    shop.make(model)
    checkpoints.prepare_torch()
    seconds = []
    for epochs in (1, 1, MORE):  # the first one pays for imports
        few = recipe.model_copy(update={"epochs": epochs})
        began = processor_seconds()
        learn(shop.rows(model), shop.everything, few, model.seed, f"time {name}")
        seconds.append(processor_seconds() - began)
    _, once, more = seconds
    return once + (more - once) / (MORE - 1) * (recipe.epochs - 1)


def _few(unlearned: list[PoolModel]) -> list[str]:
    """Two unlearned models that stand for all: the strongest of the first method, and the one in the middle of the list."""
    first = [model for model in unlearned if model.kind == unlearned[0].kind]
    return list(dict.fromkeys(model.name for model in (*first[-1:], *unlearned[len(unlearned) // 2 :][:1])))


@dataclass(frozen=True)
class _Timed:
    """Processor seconds of observing one model and of its numbers, how many these are, and whether it would be attacked."""

    name: str
    observing: float
    numbering: float
    numbers: int
    useful: bool


def _timed(shards: Shards, names: list[str]) -> list[_Timed]:
    from lethe.evaluation.knowledge import numbers

    retrain = shards.observe(shards.workshop.models["retrain"], "plain").seen
    found: list[_Timed] = []
    for name in names:
        observed = shards.observe(shards.workshop.models[name], "plain")
        began = processor_seconds()
        count = len(numbers(observed.seen, retrain, shards.asking))
        seconds = processor_seconds() - began
        found.append(_Timed(name, observed.seconds, seconds, count, shards.useful(observed.utility)))
    return found


def _attacking(shards: Shards) -> float:
    """Mean processor seconds of the two attacks, timed on the model that is unlearned."""
    shop, began = shards.workshop, processor_seconds()
    place = shop.make(shop.base)
    shop.relearned(place, 0)
    shop.quantised(place, 0)
    return (processor_seconds() - began) / len(ATTACKED)


def _mean(seconds: Iterable[float]) -> float:
    given = list(seconds)
    return sum(given) / len(given) if given else 0.0


def _unlearning(params: Params, shards: Shards, made: list[PoolModel]) -> float:
    """Mean processor seconds of unlearning a model, from a timed step of each method on the model that is unlearned."""
    if not made:
        return 0.0
    from lethe.models import checkpoints
    from lethe.models.in_memory import InMemory
    from lethe.steps.training_costs import Bench, tokens_of_method

    shop = shards.workshop
    start = InMemory(*checkpoints.load(shop.make(shop.base), "float32"))
    bench: Bench = Bench(params, shop.splits, start)
    each = [
        tokens_of_method(model.method, params, bench) * bench.seconds_per_token(model.method)
        for model in made
        if model.method is not None
    ]
    return sum(each) / len(each)


def _start() -> float:
    """Processor seconds of a process that imports what every shard needs."""
    before = os.times()
    subprocess.run(
        [sys.executable, "-c", "import torch, transformers, pandas, prefect"], check=True, capture_output=True
    )
    after = os.times()
    used = (after.children_user + after.children_system) - (before.children_user + before.children_system)
    return float(used)
