"""DVC's own processor time in projects of many models, none of which has anything to do.

A project of each size has the committed dvc.yaml, made-up outputs, and a dvc.lock in which every stage is up to date. The
columns: reading the graph and what is stale, as `lethe run` does before its first stage; DVC's process of one stage; one
write of a stage's entry into dvc.lock, as after every stage that ran. ``--idle`` times `lethe run` (`idle` of the
benchmarks); its exit status is 1 above `MOST` processor seconds.
"""

import argparse
import contextlib
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flows import workspace
from lethe.results import table
from tests.small import ROOT, make_repository, run, small_params, write_params

FEW = ("base", "retrain")
PER_MODEL = ("sample", "likelihood", "score", "exact", "extract", "metrics", "epsilon_star")
MOST = 60  # processor seconds of a run of 200 models with nothing to do
OUTPUTS = ("generations", "likelihood", "scores", "epsilon_star")
RESULTS = ("exact", "extract", "metrics", "epsilon_star")


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("models", type=int, nargs="*", default=[50, 200, 833], help="sizes [50 200 833]")
    asked.add_argument("--idle", action="store_true", help="time `lethe run` with nothing to do, and no more")
    asked.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.read:
        print(json.dumps(_timed(options.read)))
        return 0
    if options.idle:
        return max(_idle(models) for models in options.models)
    print(
        f"{'models':>7} {'stages':>7} {'read graph':>11} {'again':>7} {'one stage':>11} "
        f"{'one entry':>10} {'dvc.lock':>9} {'peak':>9}",
        flush=True,
    )
    for models in options.models:
        with tempfile.TemporaryDirectory() as folder:
            root = project(Path(folder) / "lethe", models)
            first, again = _child(root), _child(root)
            told = f"{models:7,} {again['stages']:7,} {first['read']:9.1f} s {again['read']:5.1f} s {_repro(root):9.1f} s"
            size = (root / "dvc.lock").stat().st_size / 1e6
            print(f"{told} {again['entry']:8.1f} s {size:6.1f} MB {again['peak']:5.0f} MiB", flush=True)
            if again["stale"]:
                print(f"stale: {', '.join(again['stale'][:5])}", file=sys.stderr)
                return 1
    return 0


def project(root: Path, models: int) -> Path:
    """A project of this many models whose stages are all up to date, with made-up outputs."""
    names = [*FEW, *(f"m{place:05d}" for place in range(2, models))]
    params = small_params()
    params["train"]["models"], params["unlearn"]["methods"] = {}, {}
    params["models"] = {name: {"path": f"data/models/{name}"} for name in FEW}
    make_repository(root, params, git=False)
    for name in FEW:
        _outputs(root, name)
    for place in ("dataset/forget.jsonl", "results/compare/models.parquet", "report/index.html"):
        _file(root / "data" / place)
    workspace.prepare(root)
    run(root, "stages.sources")
    per_model = [f"{stage}@{name}" for stage in PER_MODEL for name in FEW]
    _dvc(root, "commit", "--force", "sources", "prepare", *per_model, "compare", "report")
    _multiply(root, names)
    params["models"] = {name: {"path": f"data/models/{name}"} for name in names}
    write_params(root, params)
    for name in names[len(FEW) :]:
        _outputs(root, name)
    _dvc(root, "commit", "--force", "compare", "report")
    return root


def _multiply(root: Path, names: list[str]) -> None:
    """Give every further model the entries of the second one in dvc.lock, under its own name."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    lock: dict[str, Any] = yaml.load((root / "dvc.lock").read_text(encoding="utf-8"))
    known = FEW[1]
    text = json.dumps({name: entry for name, entry in lock["stages"].items() if name.endswith(f"@{known}")})
    for name in names[len(FEW) :]:
        own = text
        for mark in "@ /.":
            own = own.replace(f"{mark}{known}", f"{mark}{name}")
        lock["stages"] |= json.loads(own)
    with open(root / "dvc.lock", "w", encoding="utf-8") as file:
        yaml.dump(lock, file)


def _outputs(root: Path, name: str) -> None:
    """The same content for every model, so that all have the hashes of one."""
    data = root / "data"
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        _file(data / "models" / name / file)
    for kind in OUTPUTS:
        _file(data / kind / name / "forget.parquet")
    for place in (f"metrics/{name}.json", *(f"results/{stage}/{name}.parquet" for stage in RESULTS)):
        _file(data / place)


def _file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.parent.name == "results":
        table.write(path, [])
    else:
        path.write_text('{"schema": 1}\n')


def _dvc(root: Path, *arguments: str) -> None:
    run(root, "dvc", *arguments, "--quiet", timeout=1800)


def _child(root: Path) -> dict[str, Any]:
    done = run(ROOT, "tests.benchmarks.dvc_graph", "--read", str(root.resolve()), timeout=1800)
    return json.loads(done.stdout.splitlines()[-1])


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _repro(root: Path) -> float:
    """Processor seconds of the DVC process of one stage that has nothing to do."""
    before = _children_seconds()
    run(root, "dvc", "repro", "--single-item", f"metrics@{FEW[0]}")
    return _children_seconds() - before


def _idle(models: int) -> int:
    """Print what `lethe run` with nothing to do takes, its Prefect server included."""
    with tempfile.TemporaryDirectory() as folder:
        root = project(Path(folder) / "lethe", models)
        for _ in range(2):  # the first run also makes Prefect's tables
            before, began = _children_seconds(), time.monotonic()
            done = run(root, "lethe", "run", "--json", timeout=1800)
            took, used = time.monotonic() - began, _children_seconds() - before
            ends = [end["state"] for end in json.loads(done.stdout)["stages"].values()]
            state = f"{len(ends):,} stages {' and '.join(sorted(set(ends)))}"
            print(
                f"{models:,} models: {state}: {used:.1f} processor seconds, {took:.1f} s on the clock", flush=True
            )
    return int(used > MOST)


def _timed(root: Path) -> dict[str, Any]:
    from dvc.repo import Repo

    began = time.process_time()
    graph = workspace.read_graph(root)
    read = time.process_time() - began
    with contextlib.chdir(root), Repo(str(root)) as repo, repo.lock:  # DVC names stages from here
        (stage,) = repo.stage.collect(f"metrics@{FEW[0]}")
        began = time.process_time()
        stage.dump(update_pipeline=False)
        entry = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    stages, stale = len(graph.upstream), sorted(graph.stale)
    return {"stages": stages, "stale": stale, "read": read, "entry": entry, "peak": peak}


if __name__ == "__main__":
    sys.exit(main())
