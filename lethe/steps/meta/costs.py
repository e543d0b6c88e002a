"""What a meta-evaluation takes: its first two models are made and timed, and the run reuses them.

An untrained model neither ends its answers nor repeats them, so its times say nothing: the model that is unlearned and
Retrain are worked whole (they come first in a run anyway), and a step of each unlearning method is timed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.steps.costs import processor_seconds
from lethe.steps.meta.observing import Observer
from lethe.steps.meta.pool import PoolModel
from lethe.steps.meta.shards import ATTACKED, Shards

if TYPE_CHECKING:
    from lethe.config import Params
    from lethe.steps.training_costs import Bench

OBSERVED = ("greedy", "answers", "likelihood", "trees")


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
    """Time the first two models and a step of each method; count everything.

    Parameters
    ----------
    params : Params
        With the section ``meta_evaluation``.
    cores : int
        The cores of the run.
    batch : int
        Models per process.
    scratch : Path, optional
        The folder of finished models; by default that of the command.

    Returns
    -------
    MetaPlan
    """
    from lethe.steps.meta.workshop import SCRATCH, Workshop

    shards = Shards(params, Workshop(params, scratch or SCRATCH))
    shop = shards.workshop
    trained = [model for model in shop.models.values() if model.role != "unlearned" and model.recipe is not None]
    unlearned = [model for model in shop.models.values() if model.role == "unlearned"]
    training = _training(shards, trained)
    observing, numbering, count = _observing(shards)
    states = len(shop.models) + len(ATTACKED) * (len(unlearned) + 1)
    start = _start()
    processes = 2 + -(-len(shards.rest) // batch)
    made = [model for model in unlearned if model.method is not None]
    costs = [
        WorkCost("train a model", len(trained), training),
        WorkCost("unlearn a model", len(made), _unlearning(params, shards, made)),
        WorkCost("observe a model", states, observing),
        WorkCost("ask again after relearning a few rows", len(unlearned), observing * _few(shards)),
        WorkCost("compute all numbers of a model", states, numbering),
        WorkCost("start a process", processes, start),
    ]
    return MetaPlan(states, count, cores, tuple(one for one in costs if one.times), start)


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
    few = recipe.model_copy(update={"epochs": 2})
    began = processor_seconds()
    learn(shop.rows(model), shop.everything, few, model.seed, f"time {name}")
    return (processor_seconds() - began) / few.epochs * recipe.epochs


def _observing(shards: Shards) -> tuple[float, float, int]:
    """Mean processor seconds of observing a model and of its numbers, over the first two; and how many numbers there are."""
    shop, seconds, numbering, count = shards.workshop, [], [], 0
    from lethe.evaluation.knowledge import numbers

    retrain = None
    for name in reversed(shards.first):
        model = shop.models[name]
        observed = Observer(shop, shop.key(model), lambda model=model: shop.make(model)).observe(name)  # type: ignore[misc]
        work = observed.seen.work
        parts = {key: one.seconds for key, one in work.items() if not key.startswith("answers@")}
        seconds.append(sum(parts.values()) + work[f"answers@{shop.meta.n}"].seconds)
        retrain = retrain or observed.seen
        began = processor_seconds()
        count = len(numbers(observed.seen, retrain, shards.asking))
        numbering.append(processor_seconds() - began)
    return sum(seconds) / len(seconds), sum(numbering) / len(numbering), count


def _few(shards: Shards) -> float:
    """The share of an observation that asking again takes: fewer answers."""
    return min(1.0, shards.workshop.meta.predict.n / shards.workshop.meta.n)


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
