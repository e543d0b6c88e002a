"""The pipeline once per seed, each in a copy of the sources under .lethe/seeds, on this repository's DVC cache.

Seed 0 is params.yaml as it is. Seed i adds 10 i to each seed in params.yaml, so that data, models, unlearning and answers
change together. A repeated run continues an interrupted one, and a finished seed costs seconds.
"""

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
from lethe.io.files import Json, read_artifact
from lethe.measure.run import Run, load
from lethe.results.quantities import headline
from lethe.statistics.bound import Bound
from lethe.text import NONE
from lethe.verdict.claims import Verdict, findings
from lethe.verdict.standing import standings

FOLDER = workspace.SCRATCH / "seeds"
Summary = dict[str, Json]  # what `--json` prints; its bounds are `Bound`
VERDICTS: dict[str, Verdict] = {
    "holds": "holds",
    "opposite": "the opposite holds",
    "not_shown": "did not show",
}
Table = tuple[
    str, list[str], list[list[str]], list[str]
]  # title, columns, rows and notes for people
STEP = (
    10  # from one seed to the next: the seeds of params.yaml differ by 1, so no two runs share one
)


def points(root: Path, count: int) -> list[Point]:
    own = config.load(root / config.FILE)
    seeds = {
        "data.seed": own.data.seed,
        "train.recipe.seed": own.train.recipe.seed,
        "unlearn.recipe.seed": own.unlearn.recipe.seed,
        "sample.seed": own.sample.seed,
    }
    return [
        Point(
            tuple((key, seed + STEP * index) for key, seed in seeds.items()), label=f"seed-{index}"
        )
        for index in range(count)
    ]


def run_seeds(
    root: Path, chosen: Sequence[Point], jobs: int | None, common: Changes = ()
) -> dict[str, str]:
    """Run one seed after another, ``common`` settings before its own; return what went wrong, by the name of the seed."""
    failed = {}
    for done, point in enumerate(chosen, 1):
        folder = root / FOLDER / point.name
        values = ", ".join(f"{key} {value}" for key, value in point.settings)
        standard().print(f"{point.name} ({done} of {len(chosen)}): {values}, in {folder}")
        make_folder(root, folder, point, common)
        command = [
            sys.executable,
            "-m",
            "lethe",
            "run",
            "--json",
            *(["--jobs", str(jobs)] if jobs else []),
        ]
        environment = workspace.child_environment() | {
            "LETHE_TRACKING": "off",
            "LETHE_PARENT": str(os.getpid()),
        }
        ended = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False
        )
        if ended.returncode:
            failed[point.name] = f"exit status {ended.returncode}"
        elif sentence := tracking.log_new(folder, home=root):
            standard().print(f"{point.name}: {sentence}")
    return failed


def read_seeds(root: Path, chosen: Sequence[Point]) -> Summary:
    """Summarise the seeds that have finished, in order; raise `MissingArtifact` where none has."""
    runs = []
    for point in chosen:
        folder = root / FOLDER / point.name
        record = folder / workspace.SCRATCH / "last_run.json"
        if record.is_file() and read_artifact(record)["complete"]:
            runs.append(
                observe(point.name, load(config.load(folder / config.FILE), folder / "data", {}))
            )
    if not runs:
        raise MissingArtifact(root / FOLDER, "lethe study seeds")
    return summarise(runs)


@dataclass(frozen=True)
class SeedRun:
    """One run: the headlines of each model, a bound for each column of bounds (all models share the guarantee), the two
    words on each model, and the verdicts by the title of the claim and the model."""

    seed: str
    values: Mapping[str, Mapping[str, float]]
    bounds: Mapping[str, Bound]
    words: Mapping[str, str]
    verdicts: Mapping[str, Mapping[str, Verdict]]


def observe(seed: str, run: Run) -> SeedRun:
    """Return the values of one run that the summary needs, without the run's answers."""
    outcome, values = findings(run), {}
    bounds: dict[str, Bound] = {}
    for model in run.models:
        own = {
            key: value for key in headline(model.values) if (value := model.value(key)) is not None
        }
        values[model.name] = own
        bounds |= {key: bound for key, bound in model.bounds.items() if key in own}
    words = {standing.model: standing.words for standing in standings(run, outcome)}
    verdicts = {
        claim.title: {row.subject: row.verdict for row in claim.rows} for claim in outcome.claims
    }
    return SeedRun(seed, values, bounds, words, verdicts)


def summarise(runs: Sequence[SeedRun]) -> Summary:
    """Return the seeds, the median and range of each number per model, the bounds, and the seeds per verdict per claim."""
    models = dict.fromkeys(name for run in runs for name in run.values)
    titles = dict.fromkeys(title for run in runs for title in run.verdicts)
    return {
        "seeds": [run.seed for run in runs],
        "models": [_model(name, [run for run in runs if name in run.values]) for name in models],
        "bounds": {key: bound for run in runs for key, bound in run.bounds.items()},
        "claims": [
            _claim(title, [run.verdicts[title] for run in runs if title in run.verdicts])
            for title in titles
        ],
    }


def _model(name: str, runs: Sequence[SeedRun]) -> Summary:
    columns: dict[str, list[float]] = {}
    for key, value in (item for run in runs for item in run.values[name].items()):
        columns.setdefault(key, []).append(value)
    spreads = {
        key: {
            "median": statistics.median(own),
            "low": min(own),
            "high": max(own),
            "seeds": len(own),
        }
        for key, own in columns.items()
    }
    return {
        "model": name,
        "columns": spreads,
        "words": Counter(run.words[name] for run in runs if name in run.words),
    }


def _claim(title: str, asked: Sequence[Mapping[str, Verdict]]) -> Summary:
    """Count the seeds in which the claim held for every model and for some, and the seeds per verdict of each model."""
    outcomes = [[verdict == "holds" for verdict in verdicts.values()] for verdicts in asked]
    rows = []
    for name in dict.fromkeys(name for verdicts in asked for name in verdicts):
        count = Counter(verdicts.get(name) for verdicts in asked)
        rows.append({"model": name, **{key: count[verdict] for key, verdict in VERDICTS.items()}})
    every, some = (sum(map(how, outcomes)) for how in (all, any))
    return {"claim": title, "seeds": len(asked), "every": every, "some": some, "models": rows}


def as_markdown(title: str, columns: list[str], rows: list[list[str]], notes: list[str]) -> str:
    """A table as Markdown, the notes below it."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows)]
    return "\n".join([f"{title}:", "", *lines, "", *notes])


def model_table(summary: Summary, count: int) -> Table:
    bounds = summary["bounds"]
    shown = list(dict.fromkeys(key for model in summary["models"] for key in model["columns"]))
    notes = [
        f"{key}: {bounds[key].relation} so much {bounds[key].guarantee('the forget questions')}, in each run by itself."
        for key in shown
        if key in bounds
    ]
    rows = []
    for model in summary["models"]:
        cells = [cell(model["columns"].get(key), bounds.get(key)) for key in shown]
        words = [f"{words}: {seeds}" for words, seeds in model["words"].items()]
        rows.append([model["model"], *cells, "; ".join(words)])
    title = f"Median (lowest to highest) over {len(summary['seeds'])} of {plural(count, 'seed')}"
    notes.append("Medians and ranges describe the runs. They are no bounds.")
    return title, ["model", *shown, "forgetting, utility: seeds"], rows, notes


def claim_table(summary: Summary) -> Table:
    further = [
        "for every model",
        "for one or more",
        "holds: seeds per model",
        "the opposite: seeds per model",
    ]
    rows = []
    for row in summary["claims"]:
        verdicts = [listed(row["models"], how) for how in ("holds", "opposite")]
        rows.append([row["claim"], str(row["every"]), str(row["some"]), *verdicts])
    return (
        f"In how many of {plural(len(summary['seeds']), 'seed')} each claim held",
        ["claim", *further],
        rows,
        [],
    )


def listed(counts: Sequence[Mapping[str, Json]], how: str) -> str:
    """The models for which a claim came out so, each with its number of seeds, the highest first."""
    ordered = sorted(counts, key=lambda count: (-count[how], count["model"]))
    return ", ".join(f"{count['model']} {count[how]}" for count in ordered if count[how]) or "-"


def cell(spread: Mapping[str, float] | None, bound: Bound | None) -> str:
    """Median and range in one cell; a bound's values are rounded away from its claim."""
    if spread is None:
        return NONE
    middle, low, high = (
        replace(bound, value=spread[key]).significant(3) if bound else f"{spread[key]:.3g}"
        for key in ("median", "low", "high")
    )
    return middle if low == high else f"{middle} ({low} to {high})"
