"""What becomes runs, read from dvc.lock and its artifacts: one entry per model, audit and game, and their pipeline."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from lethe.config.yaml import load_yaml
from lethe.io.schema import read_artifact

# The metrics of a model that are logged, if the model has them; all others are in the table of its metrics.
HEADLINE = (
    "tree_lower_worst",
    *("m_bin_worst", "m_bin_pooled", "binary_any", "binary_greedy"),
    *("m_mu_worst", "tighter_mean_worst", "anytime_upper_worst", "mean", "greedy_mean"),
    *("retain_mean", "world_mean", "model_utility", "forget_quality", "epsilon_lower"),
)
MOST = 15  # metrics of a run, the steps of training not counted
SOLE = ("audit", "game")  # stages whose result belongs to no model
TRAINING = ("train", "unlearn")
KEPT = ("curves", "epsilon_star", "attacks", "audits", "games")  # folders of data/ that are kept whole with a run
GUARANTEES = "bounds.json"  # the ending of files that hold everything but the value of each bound in the metrics
NO_MEASUREMENT = ("schema", "alpha")  # numbers of a result that measure nothing; alpha is a param and in the tags
NO_CURVE = ("step", "epoch", "lr")


class LockedFile(TypedDict):
    """A dependency or output of a stage in dvc.lock."""

    path: str
    md5: NotRequired[str]


class LockedStage(TypedDict):
    """The entry of a stage in dvc.lock; ``params`` are by file."""

    cmd: NotRequired[str]
    deps: NotRequired[list[LockedFile]]
    outs: NotRequired[list[LockedFile]]
    params: NotRequired[dict[str, dict[str, object]]]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One model, audit or game, with everything that its run contains."""

    kind: str  # model | audit | game
    name: str
    fingerprint: str
    stages: dict[str, LockedStage]  # DVC's address of a stage -> its entry in dvc.lock
    params: dict[str, str]
    numbers: dict[str, float]  # everything that was measured
    bounds: dict[str, Mapping[str, object]]  # key of ``numbers`` -> its guarantee
    steps: list[tuple[int, dict[str, float]]]  # training: the step and its numbers
    artifacts: list[tuple[str, Path]]  # stage, file or folder
    standing: str = ""
    verdict: str = ""

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers that are logged: those of `HEADLINE`, or the first ones of an audit or game."""
        keys: Iterable[str] = HEADLINE
        if self.kind != "model":
            keys = sorted(self.numbers, key=lambda key: not key.endswith(".quality"))
        return {key: self.numbers[key] for key in [key for key in keys if key in self.numbers][:MOST]}

    @property
    def state(self) -> str:
        """A digest that changes whenever the run or its description does."""
        return _mark([self.fingerprint, self.standing, self.verdict])


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """All entries of one workspace, the params that made them, and the report."""

    entries: list[Entry]
    params: dict[str, str]
    report: Path | None
    report_digest: str

    @property
    def fingerprint(self) -> str:
        return _mark([self.params, sorted(entry.fingerprint for entry in self.entries)])

    @property
    def states(self) -> list[str]:
        own = _mark([self.fingerprint, self.report_digest])
        return [own, *(entry.state for entry in self.entries)]


def read_pipeline(workspace: Path) -> Pipeline:
    """The workspace as a pipeline, with the report's content: the report logs before DVC writes its entry."""
    path, report = workspace / "params.yaml", workspace / "data" / "report"
    params = flat(load_yaml(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}
    files = sorted(path for path in report.rglob("*") if path.is_file()) if report.is_dir() else []
    parts = [f"{path.relative_to(report)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    return Pipeline(read_entries(workspace), params, report if files else None, _mark(parts))


def read_entries(workspace: Path) -> list[Entry]:
    """The entries of dvc.lock whose outputs exist; a model is an entry once its metrics exist."""
    lock = workspace / "dvc.lock"
    stages = (load_yaml(lock.read_text(encoding="utf-8")) or {}).get("stages", {}) if lock.exists() else {}
    made = {
        name: entry for name, entry in stages.items() if all(path.exists() for path in _outs(entry, workspace))
    }
    shared, found = _Shared.read(workspace), _Stages(made)
    entries = []
    for name in made:
        stage, _, subject = name.partition("@")
        if stage in SOLE:
            entries.append(_entry(stage, subject, {name: made[name]}, workspace, shared))
        elif stage == "metrics":
            entries.append(_entry("model", subject, found.of(subject), workspace, shared))
    return entries


@dataclasses.dataclass(frozen=True)
class _Shared:
    """What all models share: what comparing with Retrain gave, its guarantees, and the report's summary, by model."""

    compared: dict[str, dict[str, Any]]
    guarantees: dict[str, dict[str, Mapping[str, object]]]
    told: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, workspace: Path) -> _Shared:
        data = workspace / "data"
        compared, bounds, report = (
            read_artifact(path) if path.is_file() else {}
            for path in (data / "compare.json", data / "compare_bounds.json", data / "report" / "summary.json")
        )
        return cls(_by_model(compared), _by_model(bounds.get("metrics", {})), report.get("models", {}))


def _by_model(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values under keys MODEL.METRIC, by model; no name of a model contains a full stop."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        model, dot, metric = key.partition(".")
        if dot:
            found.setdefault(model, {})[metric] = value
    return found


class _Stages:
    """The stages of dvc.lock by model, sorted once for all models."""

    def __init__(self, made: Mapping[str, LockedStage]):
        self._measured: dict[str, dict[str, LockedStage]] = {}
        self._trained: dict[str, str] = {}  # path of an output -> the stage that made it
        self._made, self._place = made, {name: place for place, name in enumerate(made)}
        for name, entry in made.items():
            stage, _, subject = name.partition("@")
            if stage in TRAINING:
                self._trained |= {out["path"]: name for out in entry.get("outs", [])}
            elif stage not in SOLE:
                self._measured.setdefault(subject, {})[name] = entry

    def of(self, model: str) -> dict[str, LockedStage]:
        """The stages of one model: the one that trained it, then those that measured it."""
        measured = self._measured.get(model, {})
        read = {dep["path"].rstrip("/") for entry in measured.values() for dep in entry.get("deps", [])}
        trained = sorted(
            {self._trained[path] for path in read & self._trained.keys()}, key=self._place.__getitem__
        )
        return {name: self._made[name] for name in trained} | measured


def _entry(kind: str, name: str, stages: dict[str, LockedStage], workspace: Path, shared: _Shared) -> Entry:
    params: dict[str, str] = {}
    numbers: dict[str, float] = {}
    bounds: dict[str, Mapping[str, object]] = {}
    steps: list[tuple[int, dict[str, float]]] = []
    artifacts: list[tuple[str, Path]] = []
    for address, stage in stages.items():
        params |= _params(address, stage)
        for path in _outs(stage, workspace):
            kept = path.suffix == ".json" or path.parent.name in KEPT
            if address.startswith("exact@"):
                artifacts.append(("exact", path))  # its summary is among the metrics
                continue
            held = [path] if path.suffix == ".json" else [path / "result.json", path / GUARANTEES]
            for file in filter(Path.is_file, held):
                if file.name.endswith(GUARANTEES):
                    bounds |= read_artifact(file).get("metrics", {})
                else:
                    numbers |= _numbers(read_artifact(file), leave=NO_MEASUREMENT)
            told = path / "training.json"
            if told.is_file():
                steps = [(step["step"], _numbers(step, leave=NO_CURVE)) for step in read_artifact(told)["steps"]]
            if kept or told.is_file():
                artifacts.append((address.partition("@")[0], path if kept else told))
    compared: dict[str, float] = {}
    if kind == "model":
        compared = _numbers(shared.compared.get(name, {}))
        numbers, bounds = numbers | compared, bounds | shared.guarantees.get(name, {})
    made = [[address, stage.get("params"), _hashes(stage)] for address, stage in stages.items()]
    standing, verdict = _verdict(numbers, shared.told.get(name, {})) if kind == "model" else ("", "")
    rest = (numbers, bounds, steps, artifacts, standing, verdict)
    return Entry(kind, name, _mark([kind, name, made, compared]), stages, params, *rest)


def _outs(stage: LockedStage, workspace: Path) -> list[Path]:
    return [workspace / out["path"] for out in stage.get("outs", [])]


def _hashes(stage: LockedStage) -> list[list[str]]:
    """The hashes of the outputs: an edit of the code that changes no output makes no run."""
    return [[out["path"], str(out.get("md5"))] for out in stage.get("outs", [])]


def _params(address: str, stage: LockedStage) -> dict[str, str]:
    """The params of a stage; those of its own entry lose the entry's name, so that two models share keys."""
    subject = address.partition("@")[2]
    found: dict[str, str] = {}
    for values in stage.get("params", {}).values():
        for key, value in flat(values).items():
            for section, short in (("unlearn.methods", "unlearn"), ("train.models", "train"), ("models", "model")):
                start = f"{section}.{subject}"
                if key == start or key.startswith(f"{start}."):
                    key = short + key[len(start) :]
                    break
            found[key] = value
    if address.partition("@")[0] in TRAINING:
        found["method"] = subject
    return found


def _verdict(numbers: Mapping[str, float], told: Mapping[str, Any]) -> tuple[str, str]:
    """Standing and verdict in the report, if the report was made from these numbers, not from an earlier run's."""
    theirs = _numbers(told.get("metrics", {}), leave=NO_MEASUREMENT)
    shared = theirs.keys() & numbers.keys()
    if not shared or any(theirs[key] != numbers[key] for key in shared):
        return "", ""
    return str(told.get("standing", "")), str(told.get("verdict", ""))


def _mark(value: object) -> str:
    """A hash that stays the same in every release, because runs in a store carry it (`cache.digest` may change)."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Nested sections as dotted keys, values as text."""
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return found


def _numbers(values: Mapping[str, object], leave: tuple[str, ...] = (), prefix: str = "") -> dict[str, float]:
    """The finite numbers of a JSON object; numbers in nested objects get dotted keys."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _numbers(value, prefix=f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            found[prefix + key] = float(value)
    return {key: value for key, value in found.items() if key not in leave}
