"""What the artifacts of a model say beside its results: how answers were drawn, audits, training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from lethe.results.table import Numbers, Result, Value
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.one_run.summary import OneRunAudit

if TYPE_CHECKING:
    from lethe.config.evaluating import Sample

Values = Mapping[str, Value]  # by exported name
Record = Mapping[str, object]  # of a kind of audit or game that names its own keys


@dataclass(frozen=True)
class TailPoint:
    """The tail curve at ``x``: means over the questions. The mean of the bounds has no joint guarantee."""

    x: float
    bound: float
    empirical: float


@dataclass(frozen=True)
class StoppedEarly:
    """The verdicts on a forget set whose questions stopped early, each at ``alpha`` by itself."""

    scorer: str
    alpha: float
    tau: float
    tau_leak: float
    questions: int
    certified: int
    leaking: int
    undecided: int
    drawn: int
    saved_share: float


@dataclass(frozen=True)
class SplitSize:
    """How many questions of a split were asked, and how often each."""

    questions: int | None
    n: int | None


@dataclass(frozen=True)
class Drawing:
    """How the answers of a model were drawn; a setting that the file leaves out is that of the params."""

    engine: str | None
    engine_reason: str | None
    stop: str | None
    temperature: float
    top_p: float
    top_k: int
    max_new_tokens: int
    splits: Mapping[str, SplitSize]


@dataclass(frozen=True)
class EpsilonStarRecord:
    """The stage `epsilon_star` of one model; an infinite or undefined estimate is None, and ``infinite`` tells which."""

    epsilon_star: float | None
    infinite: bool
    epsilon_lower: float | None
    alpha: float | None
    delta: float | None
    cut: float | None
    threshold: float | None
    n_train: int | None
    n_population: int | None
    ks_p_values: Mapping[str, float | None]
    assumes: str | None
    note: str | None
    lower_infinite: bool
    lower_method: str | None

    @property
    def bound(self) -> Bound | None:
        """The lower bound with its guarantee; None where Epsilon* was not computed."""
        value = math.inf if self.lower_infinite else self.epsilon_lower
        if value is None or self.alpha is None:
            return None
        return Bound(value, "lower", self.alpha, Covers.MODEL, self.assumes or "", self.lower_method or "")


@dataclass(frozen=True)
class OneRunRecord:
    """A one-run audit, and the mechanism that it tests."""

    audit: OneRunAudit
    mechanism: str


@dataclass(frozen=True)
class TrainingStep:
    """One step of a training run."""

    step: int
    loss: float


def tails(numbers: Numbers) -> tuple[TailPoint, ...]:
    """The tail curve of a model, averaged over the questions."""
    bounds = {row.at: row.estimate for row in numbers.series("tail_bound")}
    return tuple(
        TailPoint(row.at or 0.0, bounds.get(row.at) or 0.0, row.estimate or 0.0) for row in numbers.series("tail")
    )


def stopped_early(numbers: Numbers) -> StoppedEarly | None:
    """The verdicts of a forget set whose questions stopped early; None where n was fixed."""
    known: dict[str, Any] = numbers.values
    if known.get("certified") is None:
        return None
    return StoppedEarly(
        scorer=known["sequential_scorer"],
        alpha=known["sequential_alpha"],
        tau=known["sequential_tau"],
        tau_leak=known["sequential_tau_leak"],
        questions=known["n_questions"],
        certified=known["certified"],
        leaking=known["leaking_questions"],
        undecided=known["undecided"],
        drawn=known["samples_drawn"],
        saved_share=known["samples_saved_share"],
    )


def drawing(about: Mapping[str, object], sample: Sample) -> Drawing | None:
    """The ``about.json`` of a model's generations; None where there is none. ``sample`` are the params."""
    known: dict[str, Any] = dict(about)
    if not known:
        return None
    splits = known.get("splits", {}).items()
    return Drawing(
        engine=known.get("engine"),
        engine_reason=known.get("engine_reason"),
        stop=known.get("stop"),
        temperature=known.get("temperature", sample.temperature),
        top_p=known.get("top_p", sample.top_p),
        top_k=known.get("top_k", sample.top_k),
        max_new_tokens=known.get("max_new_tokens", sample.max_new_tokens),
        splits={name: SplitSize(size.get("questions"), size.get("n")) for name, size in splits},
    )


def epsilon_star_record(row: Result | None) -> EpsilonStarRecord | None:
    """The row of Epsilon*; None where there is none."""
    if row is None or row.evidence is None:
        return None
    whole = dict(row.evidence)
    known = {one.name: _finite(whole.get(one.name)) for one in fields(EpsilonStarRecord)}
    p_values = (whole.get("fit") or {}).get("ks_p_values") or {}
    infinite = {key: bool(whole.get(key)) for key in ("infinite", "lower_infinite")}
    return EpsilonStarRecord(**known | infinite | {"ks_p_values": p_values})


def _finite(value: Any) -> Any:
    """The value; None for an infinite or undefined number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def audit_record(result: Mapping[str, object]) -> OneRunRecord | Record:
    """The record of an audit: typed where the audit is a one-run audit, else the result as it is."""
    known: dict[str, Any] = dict(result)
    return OneRunRecord(OneRunAudit.from_json(known), known["mechanism"]) if "results" in known else known
