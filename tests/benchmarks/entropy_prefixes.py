"""Entropy optimisation given the true tokens, and the model's own greedy and sampled tokens: what each does over seeds.

``entropy-prefixes` of the benchmarks` runs the preset of that name with five seeds, as fixed in `lethe study
seeds`, and prints a
Markdown table: median and range of mean leakage, worst question and standard deviation, and in how many seeds each is lower
than that of the matched control. A second call continues an interrupted one; ``--summary`` runs nothing. With ``--write
docs/evidence.md`` the table replaces what stands between ``<!-- prefixes -->`` and ``<!-- end prefixes -->``.
"""

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from flows import workspace
from flows.grid import Point
from flows.settings import read_preset
from lethe.errors import MissingArtifact
from lethe.io.files import read_json
from lethe.results import table as results
from lethe.statistics.bound import Side
from lethe.text import number
from studies.seeds import FOLDER, points, run_seeds
from tests.benchmarks import marks

PRESET = "entropy-prefixes"
CONTROL = "npo_matched"
# Column: head, rounding of its values. m_bin_worst is an upper bound, which is rounded up.
COLUMNS = {
    "binary_mean": "mean leakage",
    "m_bin_worst": "worst question at most",
    "sd": "standard deviation of the score",
}
Seed = Mapping[str, Mapping[str, float]]  # model to column to value


def chosen_points(root: Path, count: int) -> list[Point]:
    """The seeds, in folders of their own."""
    return [Point(one.settings, label=f"{PRESET}-{one.label}") for one in points(root, count)]


def finished(root: Path, point: Point) -> bool:
    record = root / FOLDER / point.name / workspace.SCRATCH / "last_run.json"
    return record.is_file() and bool(read_json(record)["complete"])


def read(root: Path, chosen: Sequence[Point]) -> list[Seed]:
    """The columns of the models, for each seed that has finished."""
    found = []
    models = cast("dict[str, object]", read_preset(PRESET)["models"])
    for point in chosen:
        if finished(root, point):
            folder = root / FOLDER / point.name
            known = results.read(folder / "data", models)
            values = {name: known.model(name).values for name in models}
            found.append(
                {
                    name: {key: cast(float, own[key]) for key in COLUMNS}
                    for name, own in values.items()
                }
            )
    if not found:
        raise MissingArtifact(root / FOLDER, "python -m tests.benchmarks entropy-prefixes")
    return found


def guarantee(root: Path, chosen: Sequence[Point]) -> str:
    """What the one bound among the columns promises, read beside the values of each finished seed."""
    runs = [
        results.read(root / FOLDER / point.name / "data")
        for point in chosen
        if finished(root, point)
    ]
    each = [run.model(name).bounds for run in runs for name in run.by_model]
    bounds = [own["m_bin_worst"] for own in each if "m_bin_worst" in own]
    told = dict.fromkeys(bound.guarantee("the forget questions") for bound in bounds)
    return " ".join(
        f"The worst question is an upper bound in each run by itself, {one}." for one in told
    )


def table(found: Sequence[Seed], count: int, guaranteed: str) -> str:
    """The models, a row each, as Markdown."""
    rows = [
        [name, *(cell(found, name, key) for key in COLUMNS)]
        for name in found[0]
        if name not in ("base", "retrain")
    ]
    note = (
        f"Median (lowest to highest) over {len(found)} of {count} seeds; *lower in*: the seeds in which the value is below "
        f"that of {CONTROL}. These describe the runs and are no bounds. "
        f"{guaranteed}"
    )
    return f"{marks.markdown(['model', *COLUMNS.values()], rows)}\n\n{note}"


def cell(found: Sequence[Seed], name: str, key: str) -> str:
    """Median and range, and the seeds in which the model is below the control."""
    values = [seed[name][key] for seed in found]
    side: Side | None = "upper" if key == "m_bin_worst" else None
    middle, low, high = (
        number(one, 4, side) for one in (statistics.median(values), min(values), max(values))
    )
    shown = middle if low == high else f"{middle} ({low} to {high})"
    if name == CONTROL:
        return shown
    return f"{shown}; lower in {sum(seed[name][key] < seed[CONTROL][key] for seed in found)}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = marks.parser_of(__doc__)
    parser.add_argument("--count", type=int, default=5, help="number of seeds")
    parser.add_argument("--jobs", type=int, help="stages at once")
    parser.add_argument(
        "--summary", action="store_true", help="run nothing; the table of the finished seeds"
    )
    options = parser.parse_args(arguments)
    root = options.folder.resolve()
    chosen = chosen_points(root, options.count)
    failed: dict[str, str] = {}
    if not options.summary:
        from flows.server import require, temporary_server

        workspace.prepare(root)
        with temporary_server(root), workspace.only_run(root / FOLDER):
            require()
            failed = run_seeds(root, chosen, options.jobs, tuple(read_preset(PRESET).items()))
    for name, told in failed.items():
        print(f"{name} failed: {told}", file=sys.stderr)
    marks.put(
        options.write, "prefixes", table(read(root, chosen), options.count, guarantee(root, chosen))
    )
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
