"""One evaluated run, read from its artifacts. A missing artifact is listed and is not an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lethe.config.schema import EvaluationParams, MethodParams, Params
from lethe.evaluation.answer_scores import judges
from lethe.evaluation.exact_bounds import read_certificates
from lethe.evaluation.headline import MOST
from lethe.io.artifacts import metrics_files
from lethe.io.json_files import read_json, read_jsonl
from lethe.io.tables import read_table
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_certificates import Certificates

if TYPE_CHECKING:
    import pandas as pd

Role = Literal["base", "retrain", "subject"]


@dataclass(frozen=True)
class Model:
    """The artifacts of one entry of ``models``. `Run.missing` lists the absent artifacts."""

    name: str
    role: Role
    path: str
    adaptive_threshold: float | None
    method: str | None  # the key of unlearn.methods that made the model, if any
    metrics: dict[str, Any]
    questions: list[dict]
    m_gen: list[dict]
    convergence: list[dict]
    leak_at_k: list[dict]  # for the worst question and for the mean over the questions
    about: dict[str, Any]
    answers: dict[str, pd.DataFrame]  # split -> generations joined with their scores
    epsilon_star: dict[str, Any]
    guarantees: dict[str, Any] = field(
        default_factory=dict
    )  # for the bounds in metrics, questions and convergence
    exact: Certificates | None = None
    excess: dict[str, Any] = field(default_factory=dict)  # the exact bounds relative to Retrain's
    compared: dict[str, Any] = field(default_factory=dict)  # the result of the comparison with Retrain
    compared_guarantees: dict[str, Any] = field(default_factory=dict)
    language: dict[str, Any] = field(default_factory=dict)  # the measures by production of the language of prompts

    @property
    def values(self) -> dict[str, object]:
        """The flat metrics, including those of the comparison with Retrain."""
        return self.metrics | self.compared

    def value(self, key: str) -> float | None:
        """The number under ``key`` in `values`; None if there is none."""
        found = self.values.get(key)
        return found if isinstance(found, (int, float)) else None

    @property
    def bounds(self) -> dict[str, Bound]:
        """The values of `values` that have a guarantee, as bounds under their flat keys."""
        known = self.guarantees.get("metrics", {}) | self.compared_guarantees
        return _bounds(self.values, known, None)

    def question_bounds(self, question: Mapping[str, object]) -> dict[str, Bound]:
        """The bounds of one entry of ``questions``; of the tail bounds, only the one at the smallest threshold."""
        known: dict[str, Any] = dict(question)
        tails = known.get("m_gen") or [{}]
        keys = {"m_gen": "bound", "m_gen_lower": "lower", "m_gen_tighter": "tighter"}
        values = {**known, **{name: tails[0].get(key) for name, key in keys.items()}}
        return _bounds(values, self.guarantees.get("per_question", {}), known.get("n"))

    def convergence_bounds(self, point: Mapping[str, object]) -> dict[str, Bound]:
        """The bounds of one entry of ``convergence``."""
        known: dict[str, Any] = dict(point)
        return _bounds(known, self.guarantees.get("convergence", {}), known.get("n"))

    def asked(self, k: int, of: str = "worst") -> tuple[Bound, Bound] | None:
        """The band (lower, upper) of leak@k for the worst question, or for the mean over the questions."""
        every = self.guarantees.get("leak_at_k", {})
        of = (
            f"judged_{of}" if f"judged_{of}" in every else of
        )  # prefer true leaks, if the judge's error was measured
        guarantee = every.get(of)
        row = next((row for row in self.leak_at_k if (row["of"], row["k"]) == (of, k)), None)
        if guarantee is None or row is None:
            return None
        lower, upper = (Bound.from_dict({"value": row[side], **guarantee[side]}) for side in ("lower", "upper"))
        return lower, upper

    @property
    def calibration(self) -> Calibration | None:
        """The measured error of the judge that gave the 0/1 scores; None if the error was not measured."""
        counts = self.guarantees.get("judge")
        return Calibration(**counts) if counts else None

    @property
    def certificate(self) -> Bound | None:
        """The bound on the questions certified together, if a correction was requested."""
        claim = self.guarantees.get("together")
        if not claim:
            return None
        covers, rest = Covers(claim["covers"]), (claim["assumes"], claim["method"])
        return Bound(claim["threshold"], "upper", claim["alpha"], covers, *rest)


@dataclass(frozen=True)
class Run:
    """All artifacts of an evaluated run; ``missing`` lists the absent ones."""

    params: EvaluationParams | Params
    models: list[Model]
    forget: dict[str, dict]  # id -> row, in file order
    dataset: dict[str, Any]
    training: dict[str, list[dict]]  # trained model -> its steps
    audits: dict[str, dict]
    games: dict[str, dict]
    attacks: dict[str, dict]
    epochs: dict[str, list[dict]]  # unlearned model -> observations before the first step and after each epoch
    provenance: dict[str, Any]
    missing: list[tuple[str, str]] = field(default_factory=list)  # (path, the stage that creates the file)

    @property
    def methods(self) -> dict[str, MethodParams]:
        """The unlearning methods of the run; empty for an evaluation of the user's own model."""
        return self.params.unlearn.methods if isinstance(self.params, Params) else {}

    def role(self, role: Role) -> Model | None:
        """Return the first model with this role; None if there is none."""
        return next((model for model in self.models if model.role == role), None)

    @cached_property
    def binary(self) -> str | None:
        """The scorer ``metrics.binary``, if it judged forget answers and gave only 0 and 1; otherwise None."""
        scorer = self.params.metrics.binary
        return scorer if judges(scorer, self.models) else None

    @property
    def missing_by_stage(self) -> dict[str, list[str]]:
        """The missing paths by the stage that creates them."""
        grouped: dict[str, list[str]] = {}
        for path, stage in self.missing:
            grouped.setdefault(stage, []).append(path)
        return grouped

    @property
    def subjects(self) -> list[Model]:
        """The models under test: neither Base nor Retrain."""
        return [model for model in self.models if model.role == "subject"]


def load(params: EvaluationParams | Params, root: Path, provenance: dict[str, object]) -> Run:
    """Read the artifacts of all entries that ``params`` lists; other files are ignored.

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
    missing: list[tuple[str, str]] = []

    def read(path: str, made_by: str, reader: Callable = read_json, empty: Any = None) -> Any:
        if (root / path).is_file():
            return reader(root / path)
        missing.append((f"{root.name}/{path}", made_by))
        return {} if empty is None else empty

    params = _as_drawn(params, root)
    forget = read("dataset/forget.jsonl", "prepare", read_jsonl, [])
    whole = (
        params if isinstance(params, Params) else None
    )  # an evaluation of the user's own model has no other stages
    compared = read("compare.json", "compare") if whole else {}
    guaranteed = read("compare_bounds.json", "compare").get("metrics", {}) if whole else {}
    there = whole is not None and (root / "compare_exact.json").is_file()
    excess = read_json(root / "compare_exact.json")["models"] if there else {}
    trained: dict[str, str] = {}
    if whole:
        trained = {**dict.fromkeys(whole.train.models, "train"), **dict.fromkeys(whole.unlearn.methods, "unlearn")}
    training = {name: read(f"models/{name}/training.json", f"{stage}@{name}") for name, stage in trained.items()}
    return Run(
        params=params,
        models=[_model(name, params, root, read, compared, guaranteed, excess) for name in params.models],
        forget={row["id"]: row for _, row in forget},
        dataset=read("dataset/about.json", "prepare"),
        training={name: record.get("steps", []) for name, record in training.items()},
        audits={
            name: read(f"audits/{name}/result.json", f"audit@{name}") for name in (whole.audits if whole else ())
        },
        games={name: read(f"games/{name}.json", f"game@{name}") for name in (whole.games if whole else ())},
        attacks={
            name: read(f"attacks/{name}/result.json", f"attack@{name}")
            for name in (whole.attacks if whole else ())
        },
        epochs={name: record["epochs"] for name, record in training.items() if record.get("epochs")},
        provenance=provenance,
        missing=missing,
    )


def _as_drawn(params: EvaluationParams | Params, root: Path) -> EvaluationParams | Params:
    """Return the params with ``sample.n: auto`` replaced by the largest number of answers drawn."""
    if params.sample.n != "auto":
        return params
    places = [root / f"generations/{name}/about.json" for name in params.models]
    drawn = [read_json(place)["splits"]["forget"]["n"] for place in places if place.is_file()]
    sample = params.sample.model_copy(update={"n": max(drawn, default=params.sample.most)})
    return params.model_copy(update={"sample": sample})


def _model(
    name: str,
    params: EvaluationParams | Params,
    root: Path,
    read: Callable,
    compared: dict[str, Any],
    guaranteed: dict[str, Any],
    excess: dict[str, Any],
) -> Model:
    entry, folder = params.models[name], Path(params.models[name].path)
    whole = params if isinstance(params, Params) else None
    own = whole is not None and folder.parent == Path("data/models") and folder.name in whole.unlearn.methods
    # The only model of `lethe eval` is the subject, whatever its name.
    roles: dict[str | None, Role] = {whole.report.base: "base", whole.report.retrain: "retrain"} if whole else {}
    return Model(
        name=name,
        role=roles.get(name, "subject"),
        path=entry.path,
        adaptive_threshold=entry.adaptive_threshold,
        method=folder.name if own else None,
        metrics=_metrics(name, root, read),
        questions=read(f"curves/{name}/per_question.json", f"metrics@{name}", empty=[]),
        m_gen=read(f"curves/{name}/m_gen.json", f"metrics@{name}", empty=[]),
        convergence=read(f"curves/{name}/convergence.json", f"metrics@{name}", empty=[]),
        leak_at_k=read(f"curves/{name}/leak_at_k.json", f"metrics@{name}", empty=[]),
        about=read(f"generations/{name}/about.json", f"sample@{name}"),
        answers=_answers(name, root, read),
        epsilon_star=read(f"epsilon_star/{name}/result.json", f"epsilon_star@{name}") if whole else {},
        guarantees=read(f"curves/{name}/bounds.json", f"metrics@{name}"),
        exact=read_certificates(root, name),
        excess=excess.get(name, {}),
        compared=_of_model(compared, name),
        compared_guarantees=_of_model(guaranteed, name),
        language=_language(root / f"curves/{name}/language.json") if params.sample.language else {},
    )


def _metrics(name: str, root: Path, read: Callable) -> dict[str, Any]:
    """Read all numbers of a model. A folder of an earlier release has all of them in the first file."""
    shown, details = metrics_files(root, name)
    found: dict[str, Any] = read(str(shown.relative_to(root)), f"metrics@{name}")
    if details.is_file() or 0 < len(found) <= MOST:
        found = read(str(details.relative_to(root)), f"metrics@{name}") | found
    return found


def _language(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _of_model(compared: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the entries MODEL.METRIC of one model by METRIC."""
    start = f"{name}."
    return {key[len(start) :]: value for key, value in compared.items() if key.startswith(start)}


def _bounds(values: Mapping[str, Any], guarantees: Mapping[str, Any], n: int | None) -> dict[str, Bound]:
    """Return the values that have a guarantee as bounds; ``n`` is the row's where the guarantee has none."""
    return {
        key: Bound.from_dict({"value": values[key], **guarantee, "n": guarantee["n"] or n})
        for key, guarantee in guarantees.items()
        if values.get(key) is not None
    }


def _answers(name: str, root: Path, read: Callable) -> dict[str, pd.DataFrame]:
    """Read the generations joined with their scores, one table per split; the row order is the sampling order."""
    splits = sorted(path.stem for path in (root / f"scores/{name}").glob("*.parquet")) or ["forget"]
    answers = {}
    for split in splits:
        drawn = read(f"generations/{name}/{split}.parquet", f"sample@{name}", read_table, ())
        scores = read(f"scores/{name}/{split}.parquet", f"score@{name}", read_table, ())
        if len(drawn) and len(scores):
            answers[split] = drawn.merge(scores, on=["prompt_id", "sample"], how="left", validate="one_to_one")
    return answers
