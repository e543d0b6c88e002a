"""What the artifacts of a model say, as records: here JSON ends, and what reads a run sees fields and bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from lethe.evaluation.leaks_at_k import LeakPoint, Points
from lethe.evaluation.model_measures import TailPoint
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.judge_error import Calibration
from lethe.statistics.one_run.summary import OneRunAudit

if TYPE_CHECKING:
    from lethe.config.evaluating import Sample

Values = Mapping[str, float | str | None]  # flat: name to number; a few names have a text
Result = Mapping[str, object]  # of a kind of audit or game that names its own keys
Guarantees = Mapping[str, Mapping[str, object]]  # name to all of a bound but its value, as in bounds.json


@dataclass(frozen=True)
class QuestionRecord:
    """One forget question of one model.

    ``bounds`` are those with a guarantee, by the name of their key; of the tail bounds those at the smallest threshold. The
    four bounds that figures draw are fields as well, because the file of the guarantees may be missing.
    """

    prompt_id: str
    question: str | None = None
    n: int | None = None
    greedy: float | None = None
    mean: float | None = None
    sd: float | None = None
    max: float | None = None
    binary_greedy: float | None = None
    binary_share: float | None = None
    binary_missing: int | None = None
    m_bin: float | None = None
    m_bin_lower: float | None = None
    m_mu: float | None = None
    anytime_upper: float | None = None
    judged_lower: float | None = None
    verdict: str | None = None
    decided_at: int | None = None
    leak_at_k: Points = ()
    bounds: Mapping[str, Bound] = field(default_factory=dict)

    def has(self, key: str) -> bool:
        """Whether the question has a value, bound or band under the key of its row."""
        return getattr(self, key, None) not in (None, ()) or key in self.bounds


@dataclass(frozen=True)
class ConvergenceRecord:
    """The first ``n`` answers to one question; a bound without a guarantee is None."""

    prompt_id: str
    n: int
    mean: float | None
    mean_bound: Bound | None
    sd: float | None
    sd_bound: Bound | None


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


@dataclass(frozen=True)
class Guaranteed:
    """The content of a model's ``bounds.json`` that is no bound of a single value."""

    calibration: Calibration | None = None  # the measured error of the judge whose verdicts the 0/1 scores are
    certificate: Bound | None = None  # of the questions certified together, where a correction was asked
    certified_metric: str | None = None


def bounds_of(values: Mapping[str, object], guarantees: Guarantees, n: int | None = None) -> dict[str, Bound]:
    """The values that have a guarantee.

    Parameters
    ----------
    values
        The values of one row by key; None where a value is missing.
    guarantees
        What `Bound.guarantee_dict` kept of each key's bound.
    n
        The number of draws of the row, for guarantees that name none.
    """
    return {
        key: Bound.from_dict({"value": values[key], **guarantee, "n": guarantee["n"] or n})
        for key, guarantee in guarantees.items()
        if values.get(key) is not None
    }


def question_record(row: Mapping[str, object], guarantees: Guarantees) -> QuestionRecord:
    """A row of ``per_question.json`` with the section ``per_question`` of the guarantees."""
    known: dict[str, Any] = dict(row)
    n, tails = known.get("n"), known.get("m_gen") or [{}]
    names = {"m_gen": "bound", "m_gen_lower": "lower", "m_gen_tighter": "tighter"}
    values = {**known, **{name: tails[0].get(key) for name, key in names.items()}}
    sides = {side: guarantees.get(f"leak_at_k_{side}") for side in ("lower", "upper")}
    own = {key: known[key] for key in names_of(QuestionRecord) if key in known}
    own |= {
        "leak_at_k": _points(known.get("leak_at_k") or (), sides, n),
        "bounds": bounds_of(values, guarantees, n),
    }
    return QuestionRecord(**own)


def convergence_record(row: Mapping[str, object], guarantees: Guarantees) -> ConvergenceRecord:
    """A row of ``convergence.json`` with its section of the guarantees."""
    known: dict[str, Any] = dict(row)
    bounds = bounds_of(known, guarantees, known.get("n"))
    ends = (bounds.get("mean_bound"), bounds.get("sd_bound"))
    return ConvergenceRecord(known["prompt_id"], known["n"], known.get("mean"), ends[0], known.get("sd"), ends[1])


def tail_point(row: Mapping[str, object]) -> TailPoint:
    """A row of ``m_gen.json``."""
    known: dict[str, Any] = dict(row)
    return TailPoint(known["x"], known["bound"], known["empirical"])


def leak_at_k(rows: Sequence[Mapping[str, object]], guarantees: Mapping[str, Guarantees]) -> dict[str, Points]:
    """The rows of ``leak_at_k.json`` by what they are of, where both sides have a guarantee."""
    return {
        of: _points([row for row in rows if row["of"] == of], guarantees.get(of, {}))
        for of in dict.fromkeys(str(row["of"]) for row in rows)
    }


def _points(
    rows: Sequence[Mapping[str, Any]], sides: Mapping[str, Mapping[str, object] | None], n: int | None = None
) -> Points:
    known = {side: guarantee for side, guarantee in sides.items() if guarantee}
    found = []
    for row in rows:
        ends = bounds_of(row, known, n)
        if len(ends) == 2:
            guess = row.get("estimate")
            found.append(
                LeakPoint(row["k"], float("nan") if guess is None else guess, ends["lower"], ends["upper"])
            )
    return tuple(found)


def guaranteed(told: Mapping[str, object]) -> Guaranteed:
    """The sections ``judge`` and ``together`` of ``bounds.json``."""
    known: dict[str, Any] = dict(told)
    judge, together = known.get("judge"), known.get("together")
    calibration = Calibration(**judge) if judge else None
    if not together:
        return Guaranteed(calibration)
    rest = (Covers(together["covers"]), together["assumes"], together["method"])
    claim = Bound(together["threshold"], "upper", together["alpha"], *rest)
    return Guaranteed(calibration, claim, together["metric"])


def stopped_early(values: Mapping[str, object]) -> StoppedEarly | None:
    """What the flat keys say of a forget set whose questions stopped early; None where n was fixed."""
    known: dict[str, Any] = dict(values)
    if known.get("certified") is None:
        return None
    return StoppedEarly(
        scorer=known["sequential_scorer"],
        alpha=known["sequential_alpha"],
        tau=known["sequential_tau"],
        tau_leak=known["sequential_tau_leak"],
        questions=known["n_questions"],
        certified=known["certified"],
        leaking=known.get("leaking_questions") or 0,
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


def epsilon_star_record(result: Mapping[str, object]) -> EpsilonStarRecord | None:
    """The ``result.json`` of the stage; None where there is none."""
    if not result:
        return None
    whole: dict[str, Any] = dict(result)
    known = {key: whole.get(key) for key in names_of(EpsilonStarRecord)}
    p_values = (whole.get("fit") or {}).get("ks_p_values") or {}
    infinite = {key: bool(whole.get(key)) for key in ("infinite", "lower_infinite")}
    return EpsilonStarRecord(**known | infinite | {"ks_p_values": p_values})


def audit_record(result: Mapping[str, object]) -> OneRunRecord | Result:
    """The ``result.json`` of an audit: a record where the audit is a one-run audit, else the result as it is."""
    known: dict[str, Any] = dict(result)
    return OneRunRecord(OneRunAudit.from_json(known), known["mechanism"]) if "results" in known else known


def names_of(record: type[QuestionRecord | EpsilonStarRecord]) -> list[str]:
    """The fields of a record."""
    return [one.name for one in fields(record)]
