"""What becomes runs, read from dvc.lock and its artifacts: one entry per model, audit and game, and their pipeline."""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lethe.io.files import Json, flat_numbers, read_artifact
from lethe.io.yaml import load_yaml
from lethe.results import table
from lethe.results.licence import reasons_of
from lethe.results.table import Numbers, Result
from lethe.statistics.bound import Bound

if TYPE_CHECKING:
    import pandas as pd

MOST = 15  # metrics of a run of an audit or game
SOLE = ("audit", "game")  # stages whose result belongs to no model
TRAINING = ("train", "unlearn")
# Folders of data/ that are kept whole with a run.
WHOLE = ("epsilon_star", "attacks", "audits", "games")
# Sections of params.yaml with an entry a model, and what stands for such an entry in the keys of its run.
SHORT_SECTIONS = {"unlearn.methods": "unlearn", "train.models": "train", "models": "model"}
NO_CURVE = ("step", "epoch", "lr")


# The entry of a stage in dvc.lock: cmd, deps and outs with path and md5, params by file.
LockedStage = Mapping[str, Json]


class FromFile(NamedTuple):
    """Results that a command read from a file: a run of their own, outside any pipeline."""

    name: str
    numbers: Mapping[str, float]
    bounds: Mapping[str, Bound]
    params: Mapping[str, object]
    table: "pd.DataFrame"


@dataclasses.dataclass(frozen=True)
class Entry:
    kind: str  # model | audit | game
    name: str
    fingerprint: str
    stages: dict[str, LockedStage]  # DVC's address of a stage -> its entry in dvc.lock
    params: dict[str, str]
    rows: tuple[Result, ...]  # everything that was measured
    steps: list[tuple[int, dict[str, float]]]  # training: the step and its numbers
    artifacts: list[tuple[str, Path]]  # stage, file or folder
    standing: str = ""
    verdict: str = ""

    @cached_property
    def numbers(self) -> dict[str, float]:
        return flat_numbers(self._whole.values)

    @property
    def bounds(self) -> dict[str, Bound]:
        return self._whole.bounds

    @property
    def refused(self) -> tuple[str, ...]:
        """Why nothing is claimed of the answers of a model; empty where it may be."""
        return reasons_of(self._whole)

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers that are logged: a model's headlines of any group, or the first ones of an audit or game."""
        if self.kind != "model":
            first = sorted(self.numbers, key=lambda key: not key.endswith(".quality"))[:MOST]
            return {key: self.numbers[key] for key in first}
        shown = set()
        for row in self._whole.rows:
            if row.kind.headlines:
                names = [name for name in row.names() if name]
                shown.add(names[-1])
        return {key: value for key, value in self.numbers.items() if key in shown}

    @cached_property
    def _whole(self) -> Numbers:
        return Numbers([row for row in self.rows if row.scope != "question"])

    @property
    def state(self) -> str:
        return _mark([self.fingerprint, self.standing, self.verdict])


@dataclasses.dataclass(frozen=True)
class Pipeline:
    entries: list[Entry]
    params: dict[str, str]
    report: Path | None
    report_digest: str

    @property
    def fingerprint(self) -> str:
        return _mark([self.params, sorted(entry.fingerprint for entry in self.entries)])

    @property
    def states(self) -> list[str]:
        state = _mark([self.fingerprint, self.report_digest])
        return [state, *(entry.state for entry in self.entries)]


def read_pipeline(workspace: Path, unfinished: Collection[str] = ()) -> Pipeline:
    """The workspace as a pipeline, with the report's content: the report logs before DVC writes its entry."""
    path = workspace / "params.yaml"
    params: dict[str, str] = {}
    if path.exists():
        params = flat(load_yaml(path.read_text(encoding="utf-8")) or {})
    folder = workspace / "data" / "report"
    digests = []
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            digests.append(f"{file.relative_to(folder)} {digest}")
    report = folder if digests else None
    return Pipeline(read_entries(workspace, unfinished), params, report, _mark(digests))


def read_entries(workspace: Path, unfinished: Collection[str] = ()) -> list[Entry]:
    """The entries of dvc.lock whose outputs exist; what stages that are ``unfinished`` left behind is an earlier run's."""
    lock = workspace / "dvc.lock"
    stages = (
        (load_yaml(lock.read_text(encoding="utf-8")) or {}).get("stages", {})
        if lock.exists()
        else {}
    )
    made = {
        name: stage
        for name, stage in stages.items()
        if all(out.exists() for out in _outs(stage, workspace))
    }
    place = table.place(workspace / "data", "compare", "models")
    old = "compare" in unfinished or read_before(made.get("compare", {}), made.values())
    compared = table.read_rows(place) if place.is_file() and not old else []
    report = workspace / "data" / "report" / "summary.json"
    current = report.is_file() and "report" not in unfinished
    verdicts = read_artifact(report).get("models", {}) if current else {}
    by_model, entries = _by_model(made), []
    for address, stage in made.items():
        kind, _, name = address.partition("@")
        if kind in SOLE:
            entries.append(_entry(kind, name, {address: stage}, workspace))
        elif kind == "metrics":
            rows = [row for row in compared if row.model == name]
            entry = _entry("model", name, by_model[name], workspace, rows)
            standing, verdict = _verdict(entry.numbers, verdicts.get(name, {}))
            entries.append(dataclasses.replace(entry, standing=standing, verdict=verdict))
    return entries


def read_before(stage: LockedStage, stages: Iterable[LockedStage]) -> str:
    """A path of which the stage read another content than one of ``stages`` has made since; empty if there is none."""
    made: dict[str, Json] = {}
    for maker in stages:
        made |= _contents(maker, "outs")
    for path, content in _contents(stage, "deps").items():
        if made.get(path) not in (None, content):
            return path
    return ""


def _contents(stage: LockedStage, kind: str) -> dict[str, Json]:
    """The digests of a stage's ``outs`` or ``deps`` by path; a digest is None where dvc.lock has none."""
    return {entry["path"].rstrip("/"): entry.get("md5") for entry in stage.get(kind, [])}


def _by_model(made: Mapping[str, LockedStage]) -> dict[str, dict[str, LockedStage]]:
    """The stages of each model: those that trained what the others read, then those that measured it."""
    measured: dict[str, dict[str, LockedStage]] = {}
    trained: dict[str, str] = {}  # path of an output -> the stage that made it
    for address, stage in made.items():
        kind, _, name = address.partition("@")
        if kind in TRAINING:
            for out in stage.get("outs", []):
                trained[out["path"]] = address
        elif kind not in SOLE:
            measured.setdefault(name, {})[address] = stage
    stages = {}
    for name, measuring in measured.items():
        read: set[str] = set()
        for stage in measuring.values():
            read |= _contents(stage, "deps").keys()
        trainers = {trained[path] for path in read & trained.keys()}
        training = {address: made[address] for address in made if address in trainers}
        stages[name] = training | measuring
    return stages


def _entry(
    kind: str,
    name: str,
    stages: dict[str, LockedStage],
    workspace: Path,
    compared: Sequence[Result] = (),
) -> Entry:
    params: dict[str, str] = {}
    rows: list[Result] = []
    steps: list[tuple[int, dict[str, float]]] = []
    artifacts: list[tuple[str, Path]] = []
    for address, stage in stages.items():
        params |= _params(address, stage)
        for path in _outs(stage, workspace):
            whole = path.is_file() or path.parent.name in WHOLE
            if path.suffix == ".parquet":
                rows += table.read_rows(path)
            training = path / "training.json"
            if training.is_file():
                steps = [(step["step"], _curve(step)) for step in read_artifact(training)["steps"]]
            if whole or training.is_file():
                artifacts.append((address.partition("@")[0], path if whole else training))
    # The hashes of outputs: an edit of the code that changes no output makes no run.
    hashes = []
    for address, stage in stages.items():
        outs = [[out["path"], str(out.get("md5"))] for out in stage.get("outs", [])]
        hashes.append([address, stage.get("params"), outs])
    fingerprint = _mark([kind, name, hashes, flat_numbers(Numbers(compared).values)])
    return Entry(kind, name, fingerprint, stages, params, (*rows, *compared), steps, artifacts)


def _outs(stage: LockedStage, workspace: Path) -> list[Path]:
    return [workspace / out["path"] for out in stage.get("outs", [])]


def _params(address: str, stage: LockedStage) -> dict[str, str]:
    """The params of a stage; those of its own entry lose the entry's name, so that two models share keys."""
    kind, _, subject = address.partition("@")
    params: dict[str, str] = {}
    for values in stage.get("params", {}).values():
        for key, value in flat(values).items():
            params[_short(key, subject)] = value
    if kind in TRAINING:
        params["method"] = subject
    return params


def _short(key: str, subject: str) -> str:
    """The key of a param without the name of the entry that it belongs to."""
    for section, short in SHORT_SECTIONS.items():
        start = f"{section}.{subject}"
        if key == start or key.startswith(f"{start}."):
            return short + key[len(start) :]
    return key


def _verdict(numbers: Mapping[str, float], shown: Mapping[str, Json]) -> tuple[str, str]:
    """Standing and verdict in the report, if the report was made from these numbers, not from an earlier run's."""
    theirs = flat_numbers(shown.get("metrics", {}))
    shared = theirs.keys() & numbers.keys()
    if not shared or any(theirs[key] != numbers[key] for key in shared):
        return "", ""
    return str(shown.get("standing", "")), str(shown.get("verdict", ""))


def _mark(value: object) -> str:
    """A hash that stays the same in every release, because runs in a store carry it (`cache.digest` may change)."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return params with dotted keys; a value that is no text, or an empty object, is JSON."""
    flattened: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            flattened |= flat(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            flattened[f"{prefix}{key}"] = value
        else:
            flattened[f"{prefix}{key}"] = json.dumps(value)
    return flattened


def _curve(step: Mapping[str, object]) -> dict[str, float]:
    return {key: value for key, value in flat_numbers(step).items() if key not in NO_CURVE}
