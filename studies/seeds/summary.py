"""A summary of one run per seed: the median and the range of each number, and the count of each claim.

A median and a range describe the runs and are not guarantees: the seeds are few, and each bound holds for its own run.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lethe.evaluation.findings import Verdict, findings
from lethe.evaluation.run import Run
from lethe.evaluation.standing import standings
from lethe.results.quantities import headline
from lethe.statistics.bound import Bound


@dataclass(frozen=True)
class SeedRun:
    """The contribution of one run."""

    seed: str
    values: Mapping[str, Mapping[str, float]]  # by model: its headlines
    bounds: Mapping[
        str, Bound
    ]  # for each column of bounds, the bound of one model: all models share the guarantee
    words: Mapping[str, str]  # the two words on each model
    verdicts: Mapping[str, Mapping[str, Verdict]]  # by the title of the claim and the model


@dataclass(frozen=True)
class Spread:
    """The values of one column over the seeds that have a value."""

    median: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class ModelSpread:
    """One model over the seeds."""

    model: str
    columns: Mapping[str, Spread]
    words: Mapping[str, int]  # two words -> the number of seeds in which they describe the model


@dataclass(frozen=True)
class ClaimCount:
    """One claim about one model: the number of seeds per verdict."""

    model: str
    holds: int
    opposite: int
    not_shown: int


@dataclass(frozen=True)
class ClaimSummary:
    """One claim over the seeds that tested it."""

    claim: str
    seeds: int
    every: int  # seeds in which the claim held for every model
    some: int  # seeds in which the claim held for one model or more
    models: tuple[ClaimCount, ...]


@dataclass(frozen=True)
class SeedSummary:
    """All seeds together."""

    seeds: tuple[str, ...]
    bounds: Mapping[str, Bound]
    models: tuple[ModelSpread, ...]
    claims: tuple[ClaimSummary, ...]


def observe(seed: str, run: Run) -> SeedRun:
    """Return the values of one run that the summary needs, without the run's answers."""
    found = findings(run)
    values = {
        model.name: {key: value for key in headline(model.values) if (value := model.value(key)) is not None}
        for model in run.models
    }
    return SeedRun(
        seed=seed,
        values=values,
        bounds={
            key: bound for model in run.models for key, bound in model.bounds.items() if key in values[model.name]
        },
        words={standing.model: standing.words for standing in standings(run, found)},
        verdicts={claim.title: {row.subject: row.verdict for row in claim.rows} for claim in found.claims},
    )


def summarise(runs: Sequence[SeedRun]) -> SeedSummary:
    """Return the summary of one or more runs; models and claims are in order of first appearance."""
    models = list(dict.fromkeys(name for run in runs for name in run.values))
    titles = list(dict.fromkeys(title for run in runs for title in run.verdicts))
    return SeedSummary(
        seeds=tuple(run.seed for run in runs),
        bounds={key: bound for run in runs for key, bound in run.bounds.items()},
        models=tuple(_model(name, runs) for name in models),
        claims=tuple(_claim(title, runs) for title in titles),
    )


def _model(name: str, runs: Sequence[SeedRun]) -> ModelSpread:
    seen = [run for run in runs if name in run.values]
    keys = dict.fromkeys(key for run in seen for key in run.values[name])
    columns = {key: [run.values[name][key] for run in seen if key in run.values[name]] for key in keys}
    spreads = {
        key: Spread(statistics.median(values), min(values), max(values), len(values))
        for key, values in columns.items()
    }
    return ModelSpread(name, spreads, Counter(run.words[name] for run in seen if name in run.words))


def _claim(title: str, runs: Sequence[SeedRun]) -> ClaimSummary:
    asked = [run.verdicts[title] for run in runs if title in run.verdicts]
    models = list(dict.fromkeys(name for verdicts in asked for name in verdicts))
    held = [[verdict == "holds" for verdict in verdicts.values()] for verdicts in asked]
    came = {name: Counter(verdicts.get(name) for verdicts in asked) for name in models}
    counts = [
        ClaimCount(name, count["holds"], count["the opposite holds"], count["did not show"])
        for name, count in came.items()
    ]
    return ClaimSummary(title, len(asked), sum(map(all, held)), sum(map(any, held)), tuple(counts))
