"""Unlearning methods over training seeds: the mean and range of each quantity over models that differ only in the seed."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from lethe.evaluation.run import Model, Run

QUANTITIES = (
    "binary_mean",
    "binary_any",
    "m_bin_worst",
    "mean",
    "forget_probability",
    "retain_greedy",
    "model_utility",
)


@dataclass(frozen=True)
class Spread:
    """One quantity over the seeds: its mean, smallest and largest value."""

    mean: float
    least: float
    greatest: float


@dataclass(frozen=True)
class MethodSeeds:
    """A method with all its seeds; ``quantities`` omits each quantity that one of the models lacks."""

    loss: str
    entropy: bool
    models: list[str]
    quantities: dict[str, Spread]


def spreads(run: Run) -> list[MethodSeeds]:
    """The methods of a run, if at least one of them was trained with several seeds; otherwise an empty list."""
    groups: dict[str, list[Model]] = {}
    for model in run.subjects:
        if model.method and model.adaptive_threshold is None:
            own = run.methods[model.method].model_copy(update={"seed": None})
            groups.setdefault(repr(own), []).append(model)
    if all(len(models) == 1 for models in groups.values()):
        return []
    return [_of(models, run) for models in groups.values()]


def _of(models: list[Model], run: Run) -> MethodSeeds:
    method = run.methods[models[0].method or ""]
    found = {}
    for key in QUANTITIES:
        values = [float(value) for model in models if (value := model.value(key)) is not None]
        if len(values) == len(models):
            found[key] = Spread(fmean(values), min(values), max(values))
    return MethodSeeds(method.loss, method.entropy is not None, [model.name for model in models], found)
