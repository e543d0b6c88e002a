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
from lethe.verdict.finding import FORGETTING, Findings

if TYPE_CHECKING:
    import pandas as pd

MOST = 15  # metrics of a run of an audit or game
SOLE = ("audit", "game", "attack")  # stages whose result belongs to no model
TRAINING = ("train", "unlearn")
# Folders of data/ that are kept whole with a run.
WHOLE = ("epsilon_star", "attacks", "audits", "games")
# Sections of params.yaml with an entry a model, and what stands for such an entry in the keys of its run.
SHORT_SECTIONS = {"unlearn.methods": "unlearn", "train.models": "train", "models": "model"}
NO_CURVE = ("step", "epoch", "lr")


# The entry of a stage in dvc.lock: cmd, deps and outs with path and md5, params by file.
LockedStage = Mapping[str, Json]


class FromFile(NamedTuple):
    """Results that a command read from a file: a run of their own, outside any pipeline.

    Attributes
    ----------
    name
        The name of the run.
    numbers
        The numbers without a guarantee, by name.
    bounds
        The numbers that have one.
    params
        What was asked; None stands for what was not.
    table
        A row per question.
    """

    name: str
    numbers: Mapping[str, float]
    bounds: Mapping[str, Bound]
    params: Mapping[str, object]
    table: "pd.DataFrame"


@dataclasses.dataclass(frozen=True)
class RunEntry:
    """What becomes a run of its own, with the stages that made it.

    Attributes
    ----------
    kind
        "model", or the stage of a result that belongs to no model: "audit", "game" or "attack".
    name
        The name of the entry in params.yaml.
    fingerprint
        A digest of the outputs and params of the stages, by which a run is found again.
    stages
        By DVC's address of a stage, its entry in dvc.lock.
    params
        The params of all stages, with dotted keys.
    rows
        Everything that was measured.
    steps
        Of training: the steps and their numbers.
    artifacts
        Files and folders that are kept with the run, each with the stage that made it.
    standing
        The two words on a model.
    verdict
        Its sentence.
    """

    kind: str
    name: str
    fingerprint: str
    stages: dict[str, LockedStage]
    params: dict[str, str]
    rows: tuple[Result, ...]
    steps: list[tuple[int, dict[str, float]]]
    artifacts: list[tuple[str, Path]]
    standing: str = ""
    verdict: str = ""

    @cached_property
    def numbers(self) -> dict[str, float]:
        """All numbers of the entry but those of single questions, by name."""
        return flat_numbers(self._whole.values)

    @property
    def bounds(self) -> dict[str, Bound]:
        """Those of them that have a guarantee."""
        return self._whole.bounds

    @property
    def refused(self) -> tuple[str, ...]:
        """Why nothing is claimed of the answers of a model; empty where it may be."""
        return reasons_of(self._whole)

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers that are logged: all of a model, or the first ones of an audit or game."""
        if self.kind == "model":
            return self.numbers
        qualities_first = sorted(self.numbers, key=lambda key: not key.endswith(".quality"))
        return {key: self.numbers[key] for key in qualities_first[:MOST]}

    @property
    def headlines(self) -> dict[str, float]:
        """The numbers of a row in the table of a pipeline: a model's headlines of any group, or all that are logged."""
        if self.kind != "model":
            return self.metrics
        shown: set[str] = set()
        for row in self._whole.rows:
            if row.kind.headlines:
                names = [name for name in row.names() if name]
                shown.add(names[0] if "estimate" in row.kind.headlines else names[-1])
        return {key: value for key, value in self.numbers.items() if key in shown}

    @cached_property
    def _whole(self) -> Numbers:
        return Numbers([row for row in self.rows if row.scope != "question"])

    @property
    def state(self) -> str:
        """A digest of the entry with its words, which may change while its outputs do not."""
        return _mark([self.fingerprint, self.standing, self.verdict])


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """The entries of a workspace, and what belongs to all of them.

    Attributes
    ----------
    params
        The whole of params.yaml, with dotted keys.
    report
        The folder of the report; None before there is one.
    report_digest
        A digest of its files.
    compared
        All rows of the stage `compare`.
    """

    entries: list[RunEntry]
    params: dict[str, str]
    report: Path | None
    report_digest: str
    compared: Sequence[Result] = ()

    @property
    def fingerprint(self) -> str:
        """A digest of the params and of all entries, by which the run of this pipeline is found again."""
        return _mark([self.params, sorted(entry.fingerprint for entry in self.entries)])

    @property
    def states(self) -> list[str]:
        """What was logged, as digests: the pipeline with its report, and each entry with its words."""
        state = _mark([self.fingerprint, self.report_digest])
        return [state, *(entry.state for entry in self.entries)]


def read_pipeline(workspace: Path, unfinished: Collection[str] = ()) -> Pipeline:
    """The workspace as a pipeline, with the report's content: the report logs before DVC writes its entry.

    ``unfinished`` are the addresses of stages that have not finished in the present run.
    """
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

    return Pipeline(
        entries=read_entries(workspace, unfinished),
        params=params,
        report=folder if digests else None,
        report_digest=_mark(digests),
        compared=_compared(workspace, unfinished),
    )


def _compared(workspace: Path, unfinished: Collection[str]) -> list[Result]:
    """The rows of the stage `compare`; none where it has not finished."""
    if "compare" in unfinished:
        return []
    return table.compared(workspace / "data")


def read_entries(workspace: Path, unfinished: Collection[str] = ()) -> list[RunEntry]:
    """The entries of dvc.lock whose outputs exist; what stages that are ``unfinished`` left behind is an earlier run's.

    An audit, a game or an attack is an entry by itself. The stages of a model are one entry, with the rows that `compare`
    wrote of it; these are left out where `compare` read results that other stages have replaced since.
    """
    from lethe.results.trace import refusal_of_all  # loads NumPy

    made = _made(workspace)
    compared: list[Result] = []
    if not read_before(made.get("compare", {}), made.values()):
        compared = _compared(workspace, unfinished)
    found = Findings.of(compared)
    untraced = refusal_of_all(compared)
    stages_of_model = _by_model(made)

    entries: list[RunEntry] = []
    for address, stage in made.items():
        kind, _, name = address.partition("@")
        if kind in SOLE:
            entry = _entry(kind, name, {address: stage}, workspace)

            # What the comparison of all models refuses is refused here, too.
            left = [row for row in entry.rows if row.quantity != "trace_share"]
            if untraced and len(left) < len(entry.rows):
                mark = _mark([entry.fingerprint, untraced])
                entry = dataclasses.replace(entry, rows=tuple(left), fingerprint=mark)
            entries.append(entry)
        elif kind == "metrics":
            rows = [row for row in compared if row.model == name]
            entry = _entry("model", name, stages_of_model[name], workspace, rows)
            words = found.about(name, FORGETTING)
            if words is not None:
                title = words.details["title"]
                entry = dataclasses.replace(entry, standing=title, verdict=words.sentence)
            entries.append(entry)
    return entries


def _made(workspace: Path) -> dict[str, LockedStage]:
    """The stages of dvc.lock whose outputs all exist."""
    lock = workspace / "dvc.lock"
    if not lock.exists():
        return {}
    document = load_yaml(lock.read_text(encoding="utf-8")) or {}
    made: dict[str, LockedStage] = {}
    for address, stage in document.get("stages", {}).items():
        if all(out.exists() for out in _outs(stage, workspace)):
            made[address] = stage
    return made


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
    trainer_of_path: dict[str, str] = {}
    for address, stage in made.items():
        kind, _, name = address.partition("@")
        if kind in TRAINING:
            for out in stage.get("outs", []):
                trainer_of_path[out["path"]] = address
        elif kind not in SOLE:
            measured.setdefault(name, {})[address] = stage

    stages: dict[str, dict[str, LockedStage]] = {}
    for name, measuring in measured.items():
        trainers: set[str] = set()
        for stage in measuring.values():
            for path in _contents(stage, "deps"):
                if path in trainer_of_path:
                    trainers.add(trainer_of_path[path])
        training = {address: stage for address, stage in made.items() if address in trainers}
        stages[name] = training | measuring
    return stages


def _entry(
    kind: str,
    name: str,
    stages: dict[str, LockedStage],
    workspace: Path,
    compared: Sequence[Result] = (),
) -> RunEntry:
    """The entry of these stages; ``compared`` are the rows of the stage `compare` about its model."""
    params: dict[str, str] = {}
    rows: list[Result] = []
    steps: list[tuple[int, dict[str, float]]] = []
    artifacts: list[tuple[str, Path]] = []
    hashes: list[Json] = []
    for address, stage in stages.items():
        params |= _params(address, stage)

        # The hashes of outputs alone: an edit of the code that changes no output makes no run.
        outs = [[out["path"], str(out.get("md5"))] for out in stage.get("outs", [])]
        hashes.append([address, stage.get("params"), outs])

        group = address.partition("@")[0]
        for path in _outs(stage, workspace):
            if table.is_place(path):
                rows += table.read_rows(path)
            elif path.suffix == ".parquet":
                continue  # a table of what was drawn or scored: its numbers are among the results
            training = path / "training.json"
            if training.is_file():
                steps = _steps(training)
            if path.is_file() or path.parent.name in WHOLE:
                artifacts.append((group, path))
            elif training.is_file():
                artifacts.append((group, training))

    fingerprint = _mark([kind, name, hashes, flat_numbers(Numbers(compared).values)])
    measured = (*rows, *compared)
    return RunEntry(kind, name, fingerprint, stages, params, measured, steps, artifacts)


def _steps(training: Path) -> list[tuple[int, dict[str, float]]]:
    """The steps of training.json, each with its numbers."""
    steps: list[tuple[int, dict[str, float]]] = []
    for step in read_artifact(training)["steps"]:
        numbers = flat_numbers(step)
        for name in NO_CURVE:
            numbers.pop(name, None)
        steps.append((step["step"], numbers))
    return steps


def _outs(stage: LockedStage, workspace: Path) -> list[Path]:
    """The files and folders that a stage writes."""
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


def _mark(value: object) -> str:
    """A hash that stays the same in every release, because runs in a store carry it (`cache.digest` may change)."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Return params with dotted keys; a value that is no text, or an empty object, is JSON.

    >>> flat({"sample": {"n": 2, "engine": "auto"}, "models": {}})
    {'sample.n': '2', 'sample.engine': 'auto', 'models': '{}'}
    """
    flattened: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            flattened |= flat(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            flattened[f"{prefix}{key}"] = value
        else:
            flattened[f"{prefix}{key}"] = json.dumps(value)
    return flattened
