"""One evaluated run, read from its artifacts; what is missing is named, not fatal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from lethe.config.schema import EvaluationParams, MethodParams, Params
from lethe.io.artifacts import Aim, References, Row, expected, read_references, rows_of
from lethe.io.files import Json, read_artifact, read_jsonl, restored
from lethe.measure.answers import AnswerTables, judges
from lethe.measure.attack_counts import AttackResult
from lethe.measure.trajectories import Trajectories
from lethe.results import population, table
from lethe.results.exact_bounds import certificates_of
from lethe.results.extraction import Extraction, extraction_of
from lethe.results.licence import reasons_of
from lethe.results.population import PopulationResult
from lethe.results.table import Numbers, Result, Results, Value
from lethe.results.wording import WORDINGS, Wording
from lethe.statistics.bound import Bound
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_trees import Certificates, Version
from lethe.statistics.one_run.audit import OneRunAudit

if TYPE_CHECKING:
    import pandas as pd


Values = Mapping[str, Value]  # by exported name
Record = Mapping[str, Json]  # of a kind of audit or game that names its own keys
Role = Literal["base", "retrain", "subject"]
T = TypeVar("T")
NOTHING = Numbers(())


@dataclass(frozen=True)
class TailPoint:
    """The tail curve at ``x``: means over the questions. The mean of the bounds has no joint guarantee."""

    x: float
    bound: float
    empirical: float


def tails(numbers: Numbers) -> tuple[TailPoint, ...]:
    """The tail curve of a model, by x; a bound that nothing may claim is 0."""
    bound_of_x = {row.at: row.estimate for row in numbers.series("tail_bound")}
    points = []
    for row in numbers.series("tail"):
        bound = bound_of_x.get(row.at) or 0.0
        points.append(TailPoint(row.at or 0.0, bound, row.estimate or 0.0))
    return tuple(points)


@dataclass(frozen=True)
class DrawingRecord:
    """How the answers of a model were drawn, by its ``about.json``, else the params; ``served``: the server's record.

    ``stream`` names whose random numbers they have (`lethe.sampling.tasks.stream_of`), "shared" where it is of no model.
    """

    engine: str | None
    engine_reason: str | None
    stop: str | None
    temperature: float
    top_p: float
    top_k: int
    max_new_tokens: int
    # by split, the numbers of ``questions``, and of answers ``n`` to each
    splits: Mapping[str, Mapping[str, int | None]]
    served: Mapping[str, Json] | None = None
    stream: str | None = None
    # digests of the weights and of the questions, as they were when the answers were drawn
    model: str | None = None
    questions: str | None = None

    @property
    def of(self) -> Version:
        return Version(self.model, self.questions)


@dataclass(frozen=True)
class OneRunRecord:
    """An audit in one run, with the mechanism that it is about."""

    audit: OneRunAudit
    mechanism: str


class _Numbered:
    """What has numbers: its values, bounds and single numbers by their exported names."""

    numbers: Numbers

    @property
    def values(self) -> Values:
        """Every single number and word by its name."""
        return self.numbers.values

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The ends with a guarantee by their names."""
        return self.numbers.bounds

    def value(self, name: str) -> float | None:
        """The number under ``name``, if there is one."""
        return self.numbers.value(name)


@dataclass(frozen=True)
class Question(_Numbered):
    """The numbers of a model about one forget question."""

    prompt_id: str
    numbers: Numbers


@dataclass(frozen=True)
class RunModel(_Numbered):
    """What the run knows of one entry of ``models``. Empty parts are named in `Run.missing`."""

    name: str
    role: Role
    path: str
    adaptive_threshold: float | None = None
    method: str | None = None  # the key of unlearn.methods that made the model, if any
    numbers: Numbers = NOTHING  # of the model as a whole
    questions: tuple[Question, ...] = ()
    drawing: DrawingRecord | None = None
    # by split, generations joined with scores
    answers: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    exact: Certificates | None = None
    extraction: Extraction | None = None

    @property
    def stale_exact(self) -> bool:
        """Whether the exact bounds are of other weights or questions than the answers, so that nothing joins the two."""
        if self.exact is None or self.exact.of is None or self.drawing is None:
            return False
        return self.exact.of.differs(self.drawing.of)

    @cached_property
    def m_gen(self) -> tuple[TailPoint, ...]:
        """The tail curve of the model."""
        return tails(self.numbers)

    @property
    def epsilon_star(self) -> Result | None:
        """Epsilon* of the model with its record as evidence; None where it was not measured."""
        return self.numbers.row("epsilon_star", "given answers")

    @cached_property
    def refused(self) -> tuple[str, ...]:
        """Why nothing may be claimed of the answers (`lethe.results.licence`); empty where it may."""
        return reasons_of(self.numbers)

    @cached_property
    def unlabelled(self) -> tuple[str, ...]:
        """Why no word on leaks is claimed of verdicts that no label measures; empty where one may be."""
        reason = self.numbers.facts("answers").get("unlabelled")
        return () if reason is None else (str(reason),)

    @cached_property
    def unjudged(self) -> list[str]:
        """The forget questions that the 0/1 scorer cannot judge, because they have no keywords."""
        unbounded = []
        for question in self.questions:
            row = question.numbers.row("leak")
            if row is None or row.upper is None:
                unbounded.append(question.prompt_id)
        # None is bounded where there is no 0/1 scorer, or where a rule could stop the draws.
        if len(unbounded) == len(self.questions):
            return []
        return unbounded

    def asked(self, k: int) -> tuple[Bound, Bound] | None:
        """The band of leak@k, lower and upper, of the worst question: of true leaks where the judge's error was measured."""
        points = self.numbers.series("leak_at_k_worst", "judged")
        if not points:
            points = self.numbers.series("leak_at_k_worst")
        for point in points:
            if point.at == k and point.lower_bound and point.upper_bound:
                return point.lower_bound, point.upper_bound
        return None

    @cached_property
    def calibration(self) -> Calibration | None:
        """The measured error of the judge whose verdicts the 0/1 scores are; None where the error was not measured."""
        row = self.numbers.row("sensitivity", "judged")
        if row is None or not row.evidence:
            return None
        return Calibration(**row.evidence)


@dataclass(frozen=True)
class Run:
    """One evaluated run: its params, its models in their order, and the artifacts that belong to no single model."""

    params: EvaluationParams | Params
    models: list[RunModel]
    forget: Mapping[str, Row]  # by id, in file order
    rows: Mapping[str, int]  # how many each split of the dataset has
    training: Mapping[str, Sequence[Mapping[str, float]]]  # by trained model: ``step`` and ``loss``
    # by unlearned model; the first is before any step
    epochs: Mapping[str, tuple[Mapping[str, float], ...]]
    audits: Mapping[str, OneRunRecord | Record]
    games: Mapping[str, Record]
    attacks: Mapping[str, AttackResult]
    provenance: Mapping[str, object]
    missing: list[tuple[str, str]] = field(default_factory=list)  # path, the stage that makes it
    kind: str = "unknown"  # of the dataset
    populations: Mapping[str, PopulationResult] = field(default_factory=dict)
    aim: Aim = "forget"
    trajectories: Trajectories = field(default_factory=Trajectories)

    @property
    def methods(self) -> dict[str, MethodParams]:
        """The unlearning methods of the run; a model of the user's own comes without any."""
        if not isinstance(self.params, Params):
            return {}
        return self.params.unlearn.methods

    def role(self, role: Role) -> RunModel | None:
        """The first model of this role; None where there is none."""
        for model in self.models:
            if model.role == role:
                return model
        return None

    @property
    def words(self) -> Wording:
        """The words of this run for readers."""
        return WORDINGS[self.aim]

    @cached_property
    def binary(self) -> str | None:
        """The scorer ``metrics.binary`` where it judged forget answers, and by 0 and 1 alone."""
        scorer = self.params.metrics.binary
        answers = [model.answers for model in self.models]
        if not scorer or not judges(scorer, answers):
            return None
        return scorer

    @property
    def missing_by_stage(self) -> dict[str, list[str]]:
        """The paths that are missing, by the stage that makes them."""
        paths_of_stage: dict[str, list[str]] = {}
        for path, stage in self.missing:
            paths_of_stage.setdefault(stage, []).append(path)
        return paths_of_stage

    @property
    def retrains(self) -> list[RunModel]:
        """The models that never saw the forget set."""
        return [model for model in self.models if model.role == "retrain"]

    @property
    def subjects(self) -> list[RunModel]:
        """The models under test."""
        return [model for model in self.models if model.role == "subject"]

    @property
    def sharing(self) -> int:
        """The number of models that share alpha: those under test, or more where the settings say so."""
        return max(1, len(self.subjects), self.params.report.models or 1)


def load(params: EvaluationParams | Params, root: Path, provenance: Mapping[str, object]) -> Run:
    """Read the artifacts of all entries that ``params`` lists, below ``root``; ignore other files.

    What is missing is named in `Run.missing` with the stage that makes it, and is not fatal. ``provenance`` is what the
    page states of machine, commit and versions.
    """
    source = _Source(root)
    params = _as_drawn(params, root)
    nothing: list[tuple[int, Json]] = []
    forget = source.read("dataset/forget.jsonl", "prepare", read_jsonl, nothing)
    about = source.json("dataset/about.json", "prepare")
    results = table.read(root, params.models)
    training: dict[str, Mapping[str, Json]] = {}
    audits: dict[str, Mapping[str, Json]] = {}
    games: dict[str, Mapping[str, Json]] = {}
    attacks: dict[str, Mapping[str, Json]] = {}
    source.there("compare", "models", "compare")
    if isinstance(params, Params):  # a model of the user's own has no other stages
        training = _training(params, source)
        audits = source.records("audit", params.audits)
        games = source.records("game", params.games)
        attacks = source.records("attack", params.attacks)
    references = _references(params, root)
    rows = {}
    for _, row in forget:
        # an answer names those that single wordings of a language ask for instead
        rows[row["id"]] = row | {"answer": expected(row, references)}
    models = [_model(name, params, source, results) for name in params.models]
    steps = {name: record.get("steps", []) for name, record in training.items()}
    audit_records = {name: _audit_record(record) for name, record in audits.items()}
    return Run(
        params=params,
        models=models,
        forget=rows,
        rows=about.get("rows", {}),
        training=steps,
        epochs=_epochs(training),
        audits=audit_records,
        games=games,
        attacks=_attack_results(attacks),
        populations=_populations(attacks),
        provenance=provenance,
        missing=source.missing,
        trajectories=Trajectories.of(training),
        kind=str(about.get("kind", "unknown")),
        aim=_aim(about),
    )


def load_models(params: EvaluationParams | Params, root: Path) -> Run:
    """Read what was drawn, scored and measured of each model, and nothing that the stage `compare` or a later stage makes."""
    source = _Source(root)
    params = _as_drawn(params, root)
    results = table.read(root, params.models, without=table.NOT_COMPARED)
    about = source.json("dataset/about.json", "prepare")
    models = [_model(name, params, source, results) for name in params.models]
    return Run(params, models, {}, {}, {}, {}, {}, {}, {}, {}, source.missing, aim=_aim(about))


def _aim(about: Mapping[str, Json]) -> Aim:
    if about.get("aim") == "refuse":
        return "refuse"
    return "forget"


def _questions(results: Results, name: str) -> tuple[Question, ...]:
    """The numbers of a model about each question, in the order of its table."""
    numbers_of_question = results.questions(name)
    return tuple(map(Question, numbers_of_question, numbers_of_question.values()))


def _role(name: str, params: EvaluationParams | Params) -> Role:
    """What a model is to the others; the only model of `lethe eval` is under test, whatever its name."""
    if not isinstance(params, Params):
        return "subject"
    if name == params.report.base:
        return "base"
    if name in params.report.retrains:
        return "retrain"
    return "subject"


def _training(params: Params, source: _Source) -> dict[str, Mapping[str, Json]]:
    """The record of training of each trained and each unlearned model."""
    records = {}
    for name in params.train.models:
        records[name] = source.json(f"models/{name}/training.json", f"train@{name}")
    for name in params.unlearn.methods:
        records[name] = source.json(f"models/{name}/training.json", f"unlearn@{name}")
    return records


def _references(params: EvaluationParams | Params, root: Path) -> References:
    """What the wordings of the first model with a language ask for; empty where there is none."""
    for name in params.models:
        references = read_references(root / "generations" / name)
        if references:
            return references
    return {}


def _epochs(
    training: Mapping[str, Mapping[str, Json]],
) -> dict[str, tuple[Mapping[str, float], ...]]:
    """What each unlearned model's method measured after each epoch."""
    epochs = {}
    for name, record in training.items():
        if record.get("epochs"):
            epochs[name] = tuple(record["epochs"])
    return epochs


def _audit_record(record: Mapping[str, Json]) -> OneRunRecord | Record:
    """An audit in one run as its class; another kind as it names its own keys."""
    if "results" not in record:
        return record
    return OneRunRecord(restored(OneRunAudit, record), record["mechanism"])


def _attack_results(records: Mapping[str, Mapping[str, Json]]) -> dict[str, AttackResult]:
    """The single attacks that were made, by their names."""
    results = {}
    for name, record in records.items():
        if record and record["kind"] != population.KIND:
            results[name] = restored(AttackResult, record)
    return results


def _populations(records: Mapping[str, Mapping[str, Json]]) -> dict[str, PopulationResult]:
    """The populations of attacks that were tried, by their names."""
    results = {}
    for name, record in records.items():
        if record and record["kind"] == population.KIND:
            results[name] = restored(PopulationResult, record)
    return results


class _Source:
    """The artifacts below a folder; what is not there is noted with the stage that makes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.missing: list[tuple[str, str]] = []

    def read(self, path: str, made_by: str, reader: Callable[[Path], T], empty: T) -> T:
        """What ``reader`` makes of a file; ``empty`` where the file is missing, which is noted."""
        place = self.root / path
        if place.is_file():
            return reader(place)
        self.missing.append((f"{self.root.name}/{path}", made_by))
        return empty

    def there(self, stage: str, name: str, made_by: str) -> None:
        """Note a table of results that another reader reads, if it is missing."""
        self.read(str(table.place(Path(), stage, name)), made_by, lambda path: None, None)

    def json(self, path: str, made_by: str) -> Mapping[str, Json]:
        """An object; empty where the file is missing."""
        return self.read(path, made_by, read_artifact, {})

    def records(self, stage: str, names: Iterable[str]) -> dict[str, Mapping[str, Json]]:
        """The record of each audit, game or attack by its name; empty where its table is missing."""
        nothing: list[Result] = []
        records: dict[str, Mapping[str, Json]] = {}
        for name in names:
            path = str(table.place(Path(), stage, name))
            rows = self.read(path, f"{stage}@{name}", table.read_rows, nothing)
            records[name] = Numbers(rows).facts("record", "run")
        return records


def _as_drawn(params: EvaluationParams | Params, root: Path) -> EvaluationParams | Params:
    """The params with the largest number of answers that was drawn in place of "auto"."""
    if params.sample.n != "auto":
        return params
    drawn = []
    for name in params.models:
        place = root / f"generations/{name}/about.json"
        if place.is_file():
            about = read_artifact(place)
            n = about["splits"]["forget"]["n"]
            drawn.append(about.get("word", {}).get("cap", n))
    most = max(drawn, default=params.sample.most)
    sample = params.sample.model_copy(update={"n": most})
    return params.model_copy(update={"sample": sample})


def _model(
    name: str, params: EvaluationParams | Params, source: _Source, results: Results
) -> RunModel:
    """What the artifacts say of one entry of ``models``."""
    entry = params.models[name]
    folder = Path(entry.path)
    method = None
    stages = ["metrics"]
    if isinstance(params, Params):
        stages += ["epsilon_star", "exact"]
        if params.extract:
            stages.append("extract")
        if params.twins:
            stages.append("twins")
        if folder.parent == Path("data/models") and folder.name in params.unlearn.methods:
            method = folder.name
    for stage in stages:
        source.there(stage, name, f"{stage}@{name}")
    return RunModel(
        name=name,
        role=_role(name, params),
        path=entry.path,
        adaptive_threshold=entry.adaptive_threshold,
        method=method,
        numbers=results.model(name),
        questions=_questions(results, name),
        drawing=_drawing(name, params, source),
        answers=_answers(name, source),
        exact=certificates_of(results, name),
        extraction=extraction_of(results, name),
    )


def _drawing(name: str, params: EvaluationParams | Params, source: _Source) -> DrawingRecord | None:
    """How the answers of a model were drawn: as its record says, else as the settings do; None without a record."""
    about = source.json(f"generations/{name}/about.json", f"sample@{name}")
    if not about:
        return None
    sample = params.models[name].asked(params.sample)
    unsaid: dict[str, Json] = {"engine": None, "engine_reason": None, "stop": None, "splits": {}}
    for setting in ("temperature", "top_p", "top_k", "max_new_tokens"):
        if setting not in about:
            unsaid[setting] = getattr(sample, setting)
    return restored(DrawingRecord, {**unsaid, **about})


def _answers(name: str, source: _Source) -> AnswerTables:
    """Generations joined with their scores, a table per split."""
    tables = (source.root / f"scores/{name}").glob("*.parquet")
    splits = sorted(table.stem for table in tables)
    files = {}
    for split in splits or ["forget"]:
        drawn = f"generations/{name}/{split}.parquet"
        scores = f"scores/{name}/{split}.parquet"
        n_drawn = source.read(drawn, f"sample@{name}", rows_of, 0)
        n_scored = source.read(scores, f"score@{name}", rows_of, 0)
        if n_drawn and n_scored:
            files[split] = (source.root / drawn, source.root / scores)
    return AnswerTables(files)
