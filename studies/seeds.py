"""The pipeline once per seed, each seed in a separate folder.

Seed 0 is params.yaml as it is. Seed i adds 10 i to each seed in params.yaml, so that data, models, unlearning and answers
change together. Each seed runs in a copy of the sources under .lethe/seeds, on this repository's DVC cache: a repeated
run continues an interrupted one, and a finished seed costs seconds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flows import workspace
from flows.grid import Point
from flows.overview import standard
from flows.sweep import Changes, make_folder
from lethe import config, tracking
from lethe.errors import MissingArtifact, plural
from lethe.evaluation.findings import Verdict, findings
from lethe.evaluation.run import Run
from lethe.evaluation.standing import standings
from lethe.io.json_files import read_artifact
from lethe.results.quantities import headline
from lethe.statistics.bound import Bound
from lethe.text import NONE

FOLDER = workspace.SCRATCH / "seeds"
Table = tuple[str, list[str], list[list[str]], list[str]]  # title, columns, rows and notes for people
STEP = 10  # from one seed to the next: the seeds of params.yaml differ by 1, so no two runs share one


def points(root: Path, count: int) -> list[Point]:
    settings = config.load(root / config.FILE)
    seeds = {
        "data.seed": settings.data.seed,
        "train.recipe.seed": settings.train.recipe.seed,
        "unlearn.recipe.seed": settings.unlearn.recipe.seed,
        "sample.seed": settings.sample.seed,
    }
    return [
        Point(tuple((key, seed + STEP * index) for key, seed in seeds.items()), label=f"seed-{index}")
        for index in range(count)
    ]


def run_seeds(root: Path, chosen: Sequence[Point], jobs: int | None, common: Changes = ()) -> dict[str, str]:
    """Run one seed after another; return what went wrong, by the name of the seed.

    ``common`` are settings of all seeds, which change before a seed's own.
    Call the function within `flows.server.temporary_server`. The progress of each stage goes to standard error.
    """
    failed = {}
    for done, point in enumerate(chosen, 1):
        folder = root / FOLDER / point.name
        told = ", ".join(f"{key} {value}" for key, value in point.settings)
        standard().print(f"{point.name} ({done} of {len(chosen)}): {told}, in {folder}")
        make_folder(root, folder, point, common)
        command = [sys.executable, "-m", "lethe", "run", "--json", *(["--jobs", str(jobs)] if jobs else [])]
        environment = workspace.child_environment() | {"LETHE_TRACKING": "off", "LETHE_PARENT": str(os.getpid())}
        ended = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
        if ended.returncode:
            failed[point.name] = f"exit status {ended.returncode}"
        elif sentence := tracking.log_new(folder, home=root):
            standard().print(f"{point.name}: {sentence}")
    return failed


def read_seeds(root: Path, chosen: Sequence[Point]) -> SeedSummary:
    """Summarise the seeds that have finished, in order; raise `MissingArtifact` where none has."""
    from lethe.evaluation.run import load

    found = []
    for point in chosen:
        folder = root / FOLDER / point.name
        record = folder / workspace.SCRATCH / "last_run.json"
        if record.is_file() and read_artifact(record)["complete"]:
            found.append(observe(point.name, load(config.load(folder / config.FILE), folder / "data", {})))
    if not found:
        raise MissingArtifact(root / FOLDER, "lethe study seeds")
    return summarise(found)


@dataclass(frozen=True)
class SeedRun:
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
    claim: str
    seeds: int
    every: int  # seeds in which the claim held for every model
    some: int  # seeds in which the claim held for one model or more
    models: tuple[ClaimCount, ...]


@dataclass(frozen=True)
class SeedSummary:
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


def as_markdown(title: str, columns: list[str], rows: list[list[str]], notes: list[str]) -> str:
    """A table as Markdown, the notes below it."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows)]
    return "\n".join([f"{title}:", "", *lines, "", *notes])


def as_object(found: SeedSummary, failed: Mapping[str, str]) -> dict[str, object]:
    return {
        "seeds": found.seeds,
        "failed": failed,
        "models": found.models,
        "bounds": {key: bound.guarantee_dict() for key, bound in found.bounds.items()},
        "claims": found.claims,
    }


def model_table(found: SeedSummary, count: int) -> Table:
    shown = list(dict.fromkeys(key for model in found.models for key in model.columns))
    notes = [
        f"{key}: {bound.relation} so much {bound.guarantee('the forget questions')}, in each run by itself."
        for key in shown
        if (bound := found.bounds.get(key))
    ]
    return (
        f"Median (lowest to highest) over {len(found.seeds)} of {plural(count, 'seed')}",
        ["model", *shown, "forgetting, utility: seeds"],
        [
            [
                model.model,
                *(cell(model.columns.get(key), found.bounds.get(key)) for key in shown),
                "; ".join(f"{words}: {seeds}" for words, seeds in model.words.items()),
            ]
            for model in found.models
        ],
        [*notes, "Medians and ranges describe the runs. They are no bounds."],
    )


def claim_table(found: SeedSummary) -> Table:
    return (
        f"In how many of {plural(len(found.seeds), 'seed')} each claim held",
        ["claim", "for every model", "for one or more", "holds: seeds per model", "the opposite: seeds per model"],
        [
            [row.claim, str(row.every), str(row.some), listed(row.models, "holds"), listed(row.models, "opposite")]
            for row in found.claims
        ],
        [],
    )


def listed(counts: Sequence[ClaimCount], how: str) -> str:
    """The models for which a claim came out so, each with its number of seeds, the highest first."""
    seeds = {count.model: getattr(count, how) for count in counts}
    return (
        ", ".join(f"{name} {seeds[name]}" for name in sorted(seeds, key=lambda name: -seeds[name]) if seeds[name])
        or "-"
    )


def cell(spread: Spread | None, bound: Bound | None) -> str:
    """Median and range in one cell; a bound's values are rounded away from its claim."""
    if spread is None:
        return NONE
    values = (spread.median, spread.low, spread.high)
    middle, low, high = (
        replace(bound, value=value).significant(3) if bound else f"{value:.3g}" for value in values
    )
    return middle if low == high else f"{middle} ({low} to {high})"
