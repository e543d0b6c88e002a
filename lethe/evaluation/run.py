"""One evaluated run, read from its artifacts; what is missing is named, not fatal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from lethe.config.schema import EvaluationParams, MethodParams, Params
from lethe.evaluation.answer_scores import judges
from lethe.evaluation.answer_tables import AnswerTables
from lethe.evaluation.attack_counts import AttackResult
from lethe.evaluation.exact_bounds import Excess, read_certificates
from lethe.evaluation.headline import MOST
from lethe.evaluation.leaks_at_k import Points
from lethe.evaluation.model_measures import TailPoint
from lethe.evaluation.prompt_language import LanguageMeasures
from lethe.evaluation.recorded import (
    ConvergenceRecord,
    Drawing,
    EpsilonStarRecord,
    Guaranteed,
    Guarantees,
    OneRunRecord,
    QuestionRecord,
    Result,
    StoppedEarly,
    TrainingStep,
    Values,
    audit_record,
    bounds_of,
    convergence_record,
    drawing,
    epsilon_star_record,
    guaranteed,
    leak_at_k,
    question_record,
    stopped_early,
    tail_point,
)
from lethe.evaluation.wording import WORDINGS, Wording
from lethe.io.artifacts import Aim, Row, metrics_files
from lethe.io.json_files import read_jsonl
from lethe.io.parts import rows_of
from lethe.io.references import References, expected, read_references
from lethe.io.schema import read_artifact
from lethe.statistics.bound import Bound
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_certificates import Certificates

if TYPE_CHECKING:
    import pandas as pd

Role = Literal["base", "retrain", "subject"]
T = TypeVar("T")


@dataclass(frozen=True)
class Model:
    """What the run knows of one entry of ``models``. Empty parts are named in `Run.missing`."""

    name: str
    role: Role
    path: str
    adaptive_threshold: float | None = None
    method: str | None = None  # the key of unlearn.methods that made the model, if any
    metrics: Values = field(default_factory=dict)
    compared: Values = field(default_factory=dict)  # what comparing with Retrain gave
    bounds: Mapping[str, Bound] = field(default_factory=dict)  # those among `values` that have a guarantee
    questions: tuple[QuestionRecord, ...] = ()
    m_gen: tuple[TailPoint, ...] = ()
    convergence: tuple[ConvergenceRecord, ...] = ()
    leak_at_k: Mapping[str, Points] = field(default_factory=dict)  # of the worst question and of the mean
    guaranteed: Guaranteed = field(default_factory=Guaranteed)
    drawing: Drawing | None = None
    answers: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # split to generations joined with scores
    epsilon_star: EpsilonStarRecord | None = None
    exact: Certificates | None = None
    excess: Excess | None = None  # the exact bounds against Retrain's
    language: LanguageMeasures | None = None  # which production of the language of prompts leaks

    @cached_property
    def values(self) -> Values:
        """The flat metrics, those against Retrain among them."""
        return {**self.metrics, **self.compared}

    def value(self, key: str) -> float | None:
        """The number among `values` under ``key``, if there is one."""
        found = self.values.get(key)
        return found if isinstance(found, (int, float)) else None

    @cached_property
    def stopped(self) -> StoppedEarly | None:
        """The verdicts of a forget set whose questions stopped early; None where n was fixed."""
        return stopped_early(self.metrics)

    def asked(self, k: int, of: str = "worst") -> tuple[Bound, Bound] | None:
        """The band of leak@k, lower and upper, of the worst question or of the mean over the questions."""
        of = (
            f"judged_{of}" if f"judged_{of}" in self.leak_at_k else of
        )  # prefer true leaks, if the judge's error was measured
        point = next((point for point in self.leak_at_k.get(of, ()) if point.k == k), None)
        return (point.lower, point.upper) if point else None

    @property
    def calibration(self) -> Calibration | None:
        """The measured error of the judge whose verdicts the 0/1 scores are; None where the error was not measured."""
        return self.guaranteed.calibration

    @property
    def certificate(self) -> Bound | None:
        """What holds of the questions that are certified together, where a correction was asked."""
        return self.guaranteed.certificate


@dataclass(frozen=True)
class Run:
    """One evaluated run: its params, its models in their order, and the artifacts that belong to no single model."""

    params: EvaluationParams | Params
    models: list[Model]
    forget: Mapping[str, Row]  # by id, in file order
    rows: Mapping[str, int]  # how many each split of the dataset has
    training: Mapping[str, tuple[TrainingStep, ...]]  # by trained model
    epochs: Mapping[str, tuple[Mapping[str, float], ...]]  # by unlearned model; the first is before any step
    audits: Mapping[str, OneRunRecord | Result]
    games: Mapping[str, Result]
    attacks: Mapping[str, AttackResult]
    provenance: Mapping[str, object]
    missing: list[tuple[str, str]] = field(default_factory=list)  # path, the stage that makes it
    aim: Aim = "forget"

    @property
    def methods(self) -> dict[str, MethodParams]:
        """The unlearning methods of the run; a model of the user's own comes without any."""
        return self.params.unlearn.methods if isinstance(self.params, Params) else {}

    def role(self, role: Role) -> Model | None:
        return next((model for model in self.models if model.role == role), None)

    @property
    def words(self) -> Wording:
        """The words of this run for readers."""
        return WORDINGS[self.aim]

    @cached_property
    def binary(self) -> str | None:
        """The scorer ``metrics.binary`` where it judged forget answers, and by 0 and 1 alone."""
        scorer = self.params.metrics.binary
        return scorer if judges(scorer, self.models) else None

    @property
    def missing_by_stage(self) -> dict[str, list[str]]:
        grouped: dict[str, list[str]] = {}
        for path, stage in self.missing:
            grouped.setdefault(stage, []).append(path)
        return grouped

    @property
    def subjects(self) -> list[Model]:
        """The models under test: neither Base nor Retrain."""
        return [model for model in self.models if model.role == "subject"]


def load(params: EvaluationParams | Params, root: Path, provenance: Mapping[str, object]) -> Run:
    """Read the artifacts of all entries that ``params`` lists, below ``root``; ignore other files.

    Parameters
    ----------
    params : EvaluationParams or Params
        The params of `lethe eval`, or of the pipeline.
    root : Path
        The folder of the artifacts.
    provenance : dict
        The record of code, libraries and machine that the report shows.

    Returns
    -------
    Run
        ``missing`` lists each absent artifact and the stage that creates it.
    """
    source = _Source(root)
    params = _as_drawn(params, root)
    whole = params if isinstance(params, Params) else None  # a model of the user's own has no other stages
    none: list[Row] = []
    forget = source.read("dataset/forget.jsonl", "prepare", _rows, none)
    about = source.json("dataset/about.json", "prepare")
    against = _against_retrain(source) if whole else _AgainstRetrain()
    trained: dict[str, str] = {}
    if whole:
        trained = {**dict.fromkeys(whole.train.models, "train"), **dict.fromkeys(whole.unlearn.methods, "unlearn")}
    training = {
        name: source.json(f"models/{name}/training.json", f"{stage}@{name}") for name, stage in trained.items()
    }
    return Run(
        params=params,
        models=[_model(name, params, source, against) for name in params.models],
        forget=_for_readers(forget, params, root),
        rows=about.get("rows", {}),
        training={
            name: tuple(TrainingStep(row["step"], row["loss"]) for row in record.get("steps", []))
            for name, record in training.items()
        },
        epochs={name: tuple(record["epochs"]) for name, record in training.items() if record.get("epochs")},
        audits={
            name: audit_record(value) for name, value in source.results("audit", whole.audits if whole else ())
        },
        games=dict(source.results("game", whole.games if whole else ())),
        attacks={
            name: AttackResult.of_json(value)
            for name, value in source.results("attack", whole.attacks if whole else ())
            if "counts" in value
        },
        provenance=provenance,
        missing=source.missing,
        aim="refuse" if about.get("aim") == "refuse" else "forget",
    )


def _for_readers(forget: Sequence[Row], params: EvaluationParams | Params, root: Path) -> dict[str, Row]:
    """The forget rows by id; an answer names those that single wordings of a language ask for instead."""
    found = [read_references(root / "generations" / name) for name in params.models]
    references: References = next(filter(None, found), {})
    return {row["id"]: row | {"answer": expected(row, references)} for row in forget}


class _Source:
    """The artifacts below a folder; what is not there is noted with the stage that makes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.missing: list[tuple[str, str]] = []

    def read(self, path: str, made_by: str, reader: Callable[[Path], T], empty: T) -> T:
        if (self.root / path).is_file():
            return reader(self.root / path)
        self.missing.append((f"{self.root.name}/{path}", made_by))
        return empty

    def json(self, path: str, made_by: str) -> Mapping[str, Any]:
        """An object; empty where the file is missing."""
        return self.read(path, made_by, read_artifact, {})

    def json_rows(self, path: str, made_by: str) -> list[Mapping[str, Any]]:
        return self.read(path, made_by, read_artifact, [])

    def results(self, stage: str, names: Iterable[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The result of each audit, game or attack."""
        place = "games/{}.json" if stage == "game" else stage + "s/{}/result.json"
        for name in names:
            yield name, self.json(place.format(name), f"{stage}@{name}")


def _rows(path: Path) -> list[Row]:
    return [cast(Row, row) for _, row in read_jsonl(path)]


@dataclass(frozen=True)
class _AgainstRetrain:
    """What the stage `compare` made, by MODEL.METRIC, and the exact bounds against Retrain's by model."""

    compared: Values = field(default_factory=dict)
    guarantees: Guarantees = field(default_factory=dict)
    excess: Mapping[str, Excess] = field(default_factory=dict)


def _against_retrain(source: _Source) -> _AgainstRetrain:
    compared = source.json("compare.json", "compare")
    guarantees = source.json("compare_bounds.json", "compare").get("metrics", {})
    path = source.root / "compare_exact.json"
    excess = read_artifact(path)["models"] if path.is_file() else {}
    return _AgainstRetrain(compared, guarantees, {name: Excess.of_json(value) for name, value in excess.items()})


def _as_drawn(params: EvaluationParams | Params, root: Path) -> EvaluationParams | Params:
    """The params with the largest number of answers that was drawn in place of "auto"."""
    if params.sample.n != "auto":
        return params
    places = [root / f"generations/{name}/about.json" for name in params.models]
    drawn = [read_artifact(place)["splits"]["forget"]["n"] for place in places if place.is_file()]
    sample = params.sample.model_copy(update={"n": max(drawn, default=params.sample.most)})
    return params.model_copy(update={"sample": sample})


def _model(name: str, params: EvaluationParams | Params, source: _Source, against: _AgainstRetrain) -> Model:
    entry, folder = params.models[name], Path(params.models[name].path)
    whole = params if isinstance(params, Params) else None
    own = whole is not None and folder.parent == Path("data/models") and folder.name in whole.unlearn.methods
    # The only model of `lethe eval` is the subject, whatever its name.
    roles: dict[str | None, Role] = {whole.report.base: "base", whole.report.retrain: "retrain"} if whole else {}
    metrics = _metrics(name, source)
    curves = {
        curve: source.json_rows(f"curves/{name}/{curve}.json", f"metrics@{name}")
        for curve in ("per_question", "m_gen", "convergence", "leak_at_k")
    }
    about = source.json(f"generations/{name}/about.json", f"sample@{name}")
    answers = _answers(name, source)
    epsilon_star = source.json(f"epsilon_star/{name}/result.json", f"epsilon_star@{name}") if whole else {}
    told = source.json(f"curves/{name}/bounds.json", f"metrics@{name}")
    compared, on_compared = _of_model(against.compared, name), _of_model(against.guarantees, name)
    return Model(
        name=name,
        role=roles.get(name, "subject"),
        path=entry.path,
        adaptive_threshold=entry.adaptive_threshold,
        method=folder.name if own else None,
        metrics=metrics,
        compared=compared,
        bounds=bounds_of({**metrics, **compared}, {**told.get("metrics", {}), **on_compared}),
        questions=tuple(question_record(row, told.get("per_question", {})) for row in curves["per_question"]),
        m_gen=tuple(map(tail_point, curves["m_gen"])),
        convergence=tuple(convergence_record(row, told.get("convergence", {})) for row in curves["convergence"]),
        leak_at_k=leak_at_k(curves["leak_at_k"], told.get("leak_at_k", {})),
        guaranteed=guaranteed(told),
        drawing=drawing(about, params.sample),
        answers=answers,
        epsilon_star=epsilon_star_record(epsilon_star),
        exact=read_certificates(source.root, name),
        excess=against.excess.get(name),
        language=_language(source.root / f"curves/{name}/language.json") if params.sample.language else None,
    )


def _metrics(name: str, source: _Source) -> Values:
    """All numbers of a model. A folder of an earlier release has all of them in the first file."""
    shown, details = (str(path.relative_to(source.root)) for path in metrics_files(source.root, name))
    found = source.json(shown, f"metrics@{name}")
    if (source.root / details).is_file() or 0 < len(found) <= MOST:
        found = {**source.json(details, f"metrics@{name}"), **found}
    return found


def _language(path: Path) -> LanguageMeasures | None:
    return LanguageMeasures.of_json(read_artifact(path)) if path.is_file() else None


def _of_model(compared: Mapping[str, T], name: str) -> dict[str, T]:
    """What MODEL.METRIC says of one model, by METRIC."""
    start = f"{name}."
    return {key[len(start) :]: value for key, value in compared.items() if key.startswith(start)}


def _answers(name: str, source: _Source) -> AnswerTables:
    """Generations joined with their scores, a table per split."""
    splits = sorted(path.stem for path in (source.root / f"scores/{name}").glob("*.parquet")) or ["forget"]
    files = {}
    for split in splits:
        places = (f"generations/{name}/{split}.parquet", f"scores/{name}/{split}.parquet")
        rows = [
            source.read(path, f"{made}@{name}", rows_of, 0)
            for path, made in zip(places, ("sample", "score"), strict=True)
        ]
        if all(rows):
            files[split] = (source.root / places[0], source.root / places[1])
    return AnswerTables(files)
