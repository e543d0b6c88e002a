"""`lethe run` in projects of many models, none of which has anything to do: processor seconds and seconds on the clock.

A project of each size has the committed dvc.yaml, made-up outputs, and a dvc.lock in which every stage is up to date.
``idle`` of the benchmarks has 200 models; its exit status is 1 above `MOST` processor seconds. ``pull`` has the 29 stages of
three models and a DVC remote that holds their outputs; its exit status is 1 where `lethe run --pull` takes more than
`MOST_OF_PULL` seconds more than `lethe run`.
"""

import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flows import workspace
from lethe.results import table
from lethe.tracking import MEASURING
from tests.small import make_repository, run, small_params, write_params

FEW = ("base", "retrain")
MOST = 60  # processor seconds of a run of at most 200 models with nothing to do
MOST_OF_PULL = 5  # seconds on the clock
SOURCES = "data/sources.json"
OUTPUTS = ("generations", "likelihood", "scores", "epsilon_star")
RESULTS = ("exact", "extract", "metrics", "epsilon_star", "twins")


def main() -> int:
    if sys.argv[1:] == ["--pull"]:
        return int(_seconds_of_pull(3) > MOST_OF_PULL)
    sizes = [int(size) for size in sys.argv[1:]] or [50, 200, 833]
    used = {models: _idle(models) for models in sizes}
    return int(any(seconds > MOST for models, seconds in used.items() if models <= 200))


def project(root: Path, models: int) -> Path:
    """A project of this many models whose stages are all up to date, with made-up outputs."""
    names = [*FEW, *(f"m{place:05d}" for place in range(2, models))]
    params = small_params()
    params["train"]["models"], params["unlearn"]["methods"] = {}, {}
    params["models"] = {name: {"path": f"data/models/{name}"} for name in FEW}
    make_repository(root, params, git=False)
    for name in FEW:
        _outputs(root, name)
    for place in (
        "dataset/forget.jsonl",
        "references/rule.json",
        "results/compare/models.parquet",
        "report/index.html",
    ):
        _file(root / "data" / place)
    workspace.prepare(root)
    run(root, "stages.sources")
    per_model = [f"{stage}@{name}" for stage in MEASURING for name in FEW]
    _dvc(
        root,
        "commit",
        "--force",
        "sources",
        "prepare",
        "references",
        *per_model,
        "compare",
        "report",
    )
    params["models"] = {name: {"path": f"data/models/{name}"} for name in names}
    write_params(root, params)
    run(root, "stages.sources")
    _multiply(root, names)
    for name in names[len(FEW) :]:
        _outputs(root, name)
    _dvc(root, "commit", "--force", "sources", "references", "compare", "report")
    return root


def _multiply(root: Path, names: list[str]) -> None:
    """Give every further model the entries of the second one in dvc.lock, under its own name."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    lock: dict[str, Any] = yaml.load((root / "dvc.lock").read_text(encoding="utf-8"))
    known = FEW[1]
    text = json.dumps(
        {name: entry for name, entry in lock["stages"].items() if name.endswith(f"@{known}")}
    )
    for name in names[len(FEW) :]:
        renamed = text
        for mark in "@ /.":
            renamed = renamed.replace(f"{mark}{known}", f"{mark}{name}")
        lock["stages"] |= json.loads(renamed)
    identities = json.loads((root / SOURCES).read_text(encoding="utf-8"))
    for entry in lock["stages"].values():
        listed = entry.get("params", {}).get(SOURCES, {})
        for key in listed:
            group, _, name = key.partition(".")
            listed[key] = identities[group][name] if name else identities[group]
    with open(root / "dvc.lock", "w", encoding="utf-8") as file:
        yaml.dump(lock, file)


def _outputs(root: Path, name: str) -> None:
    """The same content for every model, so that all have the hashes of one."""
    data = root / "data"
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        _file(data / "models" / name / file)
    for kind in OUTPUTS:
        _file(data / kind / name / "forget.parquet")
    for place in (
        f"metrics/{name}.json",
        f"twins/{name}.parquet",
        f"twins/{name}.json",
        *(f"results/{stage}/{name}.parquet" for stage in RESULTS),
    ):
        _file(data / place)


def _file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.parent.name == "results":
        table.write(path, [])
    else:
        path.write_text('{"schema": 1}\n')


def _dvc(root: Path, *arguments: str) -> None:
    run(root, "dvc", *arguments, "--quiet", timeout=1800)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _seconds_of_pull(models: int, repeats: int = 3) -> float:
    """Print and return how many seconds longer a run with nothing to do takes with ``--pull``, by medians."""
    with tempfile.TemporaryDirectory() as folder:
        root = project(Path(folder) / "lethe", models)
        _dvc(root, "remote", "add", "--default", "store", str(Path(folder) / "store"))
        _dvc(root, "push")
        _timed_run(root)  # which also makes Prefect's tables
        plain = []
        pulled = []
        for _ in range(repeats):
            plain.append(_timed_run(root))
            pulled.append(_timed_run(root, "--pull"))
    (clock, processor), (clock_pulled, processor_pulled) = _medians(plain), _medians(pulled)
    print(f"lethe run: {clock:.1f} s on the clock, {processor:.1f} processor seconds")
    print(
        f"--pull: {clock_pulled - clock:.1f} s more on the clock, of at most {MOST_OF_PULL}; ",
        end="",
    )
    print(f"{processor_pulled - processor:.1f} more processor seconds", flush=True)
    return clock_pulled - clock


def _medians(runs: list[tuple[float, float]]) -> tuple[float, float]:
    clock, processor = zip(*runs, strict=True)
    return statistics.median(clock), statistics.median(processor)


def _timed_run(root: Path, *options: str) -> tuple[float, float]:
    """Seconds on the clock and of a processor; raises ``SystemExit`` where a stage was not clean."""
    before = _children_seconds()
    began = time.monotonic()
    done = run(root, "lethe", "run", "--json", *options, timeout=1800)
    took = time.monotonic() - began
    used = _children_seconds() - before
    states = {end["why"] for end in json.loads(done.stdout)["stages"].values()}
    if states != {"clean"}:
        raise SystemExit(f"the stages were {', '.join(sorted(states))}")
    return took, used


def _idle(models: int) -> float:
    """Print and return what `lethe run` with nothing to do takes, its Prefect server included."""
    with tempfile.TemporaryDirectory() as folder:
        root = project(Path(folder) / "lethe", models)
        for _ in range(2):  # the first run also makes Prefect's tables
            before = _children_seconds()
            began = time.monotonic()
            done = run(root, "lethe", "run", "--json", timeout=1800)
            took = time.monotonic() - began
            used = _children_seconds() - before
            ends = [end["state"] for end in json.loads(done.stdout)["stages"].values()]
            state = f"{len(ends):,} stages {' and '.join(sorted(set(ends)))}"
            print(
                f"{models:,} models: {state}: {used:.1f} processor seconds, {took:.1f} s on the clock",
                flush=True,
            )
    return used


if __name__ == "__main__":
    sys.exit(main())
