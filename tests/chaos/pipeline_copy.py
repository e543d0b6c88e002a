"""The pipelines that `make chaos` disturbs, and their results as hashes.

One is a copy of this repository with the smallest sizes, whose stages load torch; the other has its shape (a chain, branches,
a report) and stages that write their outputs in small steps, so that a run takes seconds.
"""

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import small
from tests.flows import miniature
from tests.small import ROOT, make_repository, small_params

LIMIT = 900  # seconds of one run
MARK = "LETHE_CHAOS"  # in the environment of every process of a case, also of those that left their parent


def smallest_params() -> dict[str, Any]:
    """Two models through every stage, seconds each."""
    params = small_params()
    params["train"]["recipe"] |= {"epochs": 2}
    params["unlearn"]["methods"] = {
        "npo": {"loss": "npo", "lr": 5e-4, "epochs": 2, "beta": 0.4, "retain_weight": 20.0}
    }
    params["models"] = {name: {"path": f"data/models/{name}"} for name in ("retrain", "npo")}
    params["sample"] |= {"n": 16, "utility_n": 2, "utility_questions": 3, "max_new_tokens": 8}
    params["exact"] |= {"rows": 20}
    params["report"] |= {"base": None}
    return params


@dataclass
class Copy:
    folder: Path
    environment: dict[str, str]
    took: float = 0.0  # seconds of the last undisturbed run

    def start(self, mark: str, *arguments: str, **extra: str) -> subprocess.Popen:
        """Start `lethe run --json`; its output goes to the files out and err beside the folder."""
        with (
            open(self.folder.parent / "out", "w") as out,
            open(self.folder.parent / "err", "w") as err,
        ):
            return subprocess.Popen(
                [sys.executable, "-m", "lethe", "run", "--json", *arguments],
                cwd=self.folder,
                env=self.environment | {MARK: mark} | extra,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def said(self) -> tuple[str, str]:
        return (self.folder.parent / "out").read_text(), (self.folder.parent / "err").read_text()

    def hashes(self) -> dict[str, str]:
        data = self.folder / "data"
        return {
            str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(data.rglob("*"))
            if path.is_file()
            and path.name not in (".gitignore", ".gitkeep")
            and "source" not in path.parts[:-1]
        }

    def stages(self) -> dict[str, float]:
        told = json.loads((self.folder / ".lethe/last_run.json").read_text())
        return {name: end["seconds"] for name, end in told["stages"].items()}

    def graph(self) -> dict[str, list[str]]:
        from flows.workspace import read_graph

        with contextlib.chdir(self.folder):  # DVC names stages from here
            return read_graph(self.folder).upstream

    def forget(self, stages: set[str]) -> None:
        """Remove the outputs of these stages everywhere: here, in DVC's lock, cache and run cache, and the scratch files."""
        lock = self.folder / "dvc.lock"
        if lock.exists():
            held = yaml.safe_load(lock.read_text())
            kept = {name: entry for name, entry in held["stages"].items() if name not in stages}
            gone = [
                out
                for name, entry in held["stages"].items()
                if name in stages
                for out in entry["outs"]
            ]
            used = {
                name
                for entry in kept.values()
                for out in entry["outs"]
                for name in self._objects(out)
            }
            for out in gone:
                for name in self._objects(out) - used:
                    self._object(name).unlink(missing_ok=True)
            lock.write_text(yaml.safe_dump(held | {"stages": kept}, sort_keys=False))
        for stage in stages:
            for path in self._outputs(stage):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        for rest in (".dvc/cache/runs", ".lethe/scratch", ".lethe/verdicts", ".lethe/mlruns"):
            shutil.rmtree(self.folder / rest, ignore_errors=True)
        for rest in self.folder.glob("mlflow.db*"):
            rest.unlink()
        (self.folder / ".lethe/tracked.json").unlink(missing_ok=True)

    def _outputs(self, stage: str) -> list[Path]:
        group, _, key = stage.partition("@")
        entry = yaml.safe_load((self.folder / "dvc.yaml").read_text())["stages"][group]
        entry = entry.get("do", entry)
        named = [
            output if isinstance(output, str) else next(iter(output)) for output in _outs(entry)
        ]
        return [self.folder / output.replace("${key}", key) for output in named]

    def _object(self, name: str) -> Path:
        return self.folder / ".dvc/cache/files/md5" / name[:2] / name[2:]

    def _objects(self, out: Mapping[str, Any]) -> set[str]:
        """The names in DVC's cache of one output of dvc.lock."""
        name = out["md5"]
        found = {name}
        if name.endswith(".dir") and (listing := self._object(name)).exists():
            found |= {entry["md5"] for entry in json.loads(listing.read_text())}
        return found


def _outs(entry: Mapping[str, Any]) -> list[Any]:
    return [*entry.get("outs", []), *entry.get("metrics", [])]


# A stage of the light pipeline makes its output in ten parts, each kept until the output is whole.
STEP = """
import json
import time
from pathlib import Path

from lethe import config, tracking
from lethe.io.files import atomic_folder
from lethe.io.files import write_json
from lethe.io.cache import keep, recall
from lethe.process import run_stage
from lethe.results import table
from tests.flows.told import write_words


def part(out, number, text):
    place = Path(".lethe/scratch") / f"{out.replace('/', '-')}-{number}.json"
    found = recall(place)
    if found is None:
        time.sleep(0.05)
        found = f"{text} {number} " * 1000
        keep(place, found)
    return found


def main(out, text=""):
    if out.endswith(".parquet"):
        time.sleep(0.5)
        name, alpha = Path(out).stem, config.load().metrics.alpha
        rows = table.Rows(name)
        rows.add("model", "alpha", "sampled", alpha)
        rows.add("model", "score", "sampled", float(len(text)))
        table.write(out, rows.rows)
        write_json(f"data/metrics/{name}.json", {"mean": float(len(text)), "text": text, "alpha": alpha})
        return
    with atomic_folder(out) as folder:
        for number in range(10):
            (folder / f"part{number}").write_text(part(out, number, text))
        write_json(folder / "training.json", {"steps": [{"step": i, "loss": 1 / (i + 1)} for i in range(3)]})
        if out == "data/report":
            words = json.loads(Path("words.json").read_text())
            write_json(folder / "summary.json", {"models": words})
            write_words(Path("data"), words)
    for place in Path(".lethe/scratch").glob(f"{out.replace('/', '-')}-*.json"):
        place.unlink()
    if out == "data/report":
        print(tracking.log_new())


run_stage(main)
"""


def light(clone: Path) -> None:
    """The light pipeline: two branches of the miniature, whose stages take half a second and more."""
    miniature.make(clone, {"PREFECT_HOME": str(clone / ".lethe/prefect")})
    (clone / "step.py").write_text(STEP)


def make(folder: Path, kind: str) -> Copy:
    """Make the pipeline, or take the one that is there.

    ``kind``: light, or stages for the copy of this repository.
    """
    clone = folder / "pipeline"
    if not (clone / ".dvc/config.local").exists():
        shutil.rmtree(clone, ignore_errors=True)
        if kind == "light":
            light(clone)
        else:
            make_repository(clone, smallest_params(), git=False)
        (clone / ".dvc/config.local").write_text("[core]\n    no_scm = true\n")
    variables = environment(folder)
    return Copy(clone, variables | {"PYTHONPATH": str(ROOT)} if kind == "light" else variables)


def environment(folder: Path) -> dict[str, str]:
    """The environment of every run: nothing of the caller's servers, and a cache of its own."""
    cache = {"LETHE_CACHE": str(folder / "levels")}
    return small.environment("MLFLOW", "PREFECT", "DVC", "LETHE", "PYTHONPATH") | cache


def behind(graph: Mapping[str, list[str]], stage: str) -> set[str]:
    """The stage and all stages that read its outputs, at any distance."""
    found = {stage}
    for name, upstream in graph.items():  # what a stage reads comes before it
        if found & set(upstream):
            found.add(name)
    return found


def source_of_the_copy() -> str:
    """A hash of everything that the copy is made of: another one needs a new copy."""
    whole = hashlib.sha256()
    for name in (
        "lethe",
        "stages",
        "flows",
        "studies",
        "dvc.yaml",
        "tests/chaos",
        "tests/small.py",
        "tests/flows/miniature.py",
    ):
        place = ROOT / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and "__pycache__" not in path.parts:
                whole.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return whole.hexdigest()
