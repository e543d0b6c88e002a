"""A comparison of two runs: which differences hold over all questions together, with each effect and its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lethe.errors import BadInput, plural
from lethe.evaluation.sides import UNKNOWN_STOP, Scored, Side, relation
from lethe.progress import progress
from lethe.results.table import values_of
from lethe.statistics.betting import mean_upper
from lethe.statistics.bound import Assumes, Bound, Covers, level, rounded
from lethe.statistics.bounds import binary_upper
from lethe.statistics.checks import check_alpha
from lethe.statistics.many_prompts import holm
from lethe.statistics.mean_difference import Difference, Draws, difference, mean_of_differences
from lethe.statistics.sequential import METHOD as AT_THE_STOP
from lethe.statistics.sequential import StoppedSamples

HOLM = "holm"
SHOWN = 20  # rows in a table for people
STOPPED = "a rule could stop this side early; its bounds hold at the stop, but the rule biases its plain means"
WORSE, BETTER, NEITHER = "worse", "better", "not shown"
On = Literal["questions", "average"]


@dataclass(frozen=True)
class Compared:
    """One question on both sides; ``holds`` is True if its difference is on the list that holds jointly."""

    id: str
    model: str
    metric: str
    effect: Difference
    holds: bool

    @property
    def outcome(self) -> str:
        """``worse`` if B scores higher and the difference holds, ``better`` if B scores lower and the difference holds."""
        return NEITHER if not self.holds else WORSE if self.effect.difference > 0 else BETTER

    def row(self) -> dict[str, object]:
        return {"id": self.id, "model": self.model or None} | _entry(self.metric, self.effect, self.holds)


@dataclass(frozen=True)
class NotCompared:
    """A question, a model (``id`` None) or the average that cannot be compared, with the reason."""

    id: str | None
    reason: str


@dataclass(frozen=True)
class NotWorse:
    """The claim that B is worse by at most ``by`` on every compared question, or on average; ``largest`` is its upper bound.

    ``unproved`` are the questions whose own bound exceeds ``by``. Every question at alpha, without a correction: the claim is
    false only if some question's bound fails, and that of the worst question fails with probability at most alpha.
    """

    by: float
    on: On
    alpha: float
    largest: float
    unproved: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return self.largest <= self.by

    def sentence(self) -> str:
        about = "each compared question" if self.on == "questions" else "average"
        shown = rounded(self.largest, 4, "upper")
        if self.holds:
            return (
                f"B is proved not worse by more than {self.by:g} on {about} {level(self.alpha)}: at most {shown}."
            )
        names = ", ".join(self.unproved[:3]) + (" and more" if len(self.unproved) > 3 else "")
        first = f" ({names})" if names else ""
        return (
            f"B is not proved to be worse by at most {self.by:g} on {about}: the largest upper bound is {shown}{first}. "
            "`lethe plan --compare` counts the answers that this takes."
        )


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`; ``notes`` name the sampling settings that differ.

    ``worst_of_b`` is an upper bound of B's largest question at alpha, where ``not_worse`` or that bound was asked for.
    """

    a: str
    b: str
    alpha: float
    metric: str
    per_question: tuple[Compared, ...]
    pooled: Difference | None
    not_compared: tuple[NotCompared, ...]
    notes: tuple[str, ...]
    not_worse: NotWorse | None = None
    worst_of_b: Bound | None = None

    @property
    def pooled_holds(self) -> bool:
        """Whether the average differs: a separate claim at alpha."""
        return self.pooled is not None and self.pooled.p_value <= self.alpha

    @property
    def worse(self) -> bool:
        """Whether B is worse on some question or on average; wrong with probability at most alpha.

        The list of worse questions and "worse on average" take half of alpha each.
        """
        pooled = self.pooled is not None and self.pooled.p_above() <= self.alpha / 2
        return pooled or any(one.outcome == WORSE for one in self.per_question)

    def as_json(self) -> dict[str, object]:
        pooled, claim = None, self.not_worse
        if self.pooled is not None:
            pooled = _entry(self.metric, self.pooled, self.pooled_holds) | {"questions": len(self.per_question)}
        return {
            **{name: getattr(self, name) for name in ("a", "b", "alpha", "metric", "worse")},
            **{name: values_of(getattr(self, name)) for name in ("not_compared", "notes", "worst_of_b")},
            "correction": HOLM,
            "per_question": [one.row() for one in self.per_question],
            "pooled": pooled,
            "not_worse": claim and {**values_of(claim), "holds": claim.holds},
        }

    def ranked(self) -> list[Compared]:
        """The questions, those whose difference holds first, in descending order of the difference."""
        return sorted(self.per_question, key=lambda one: (not one.holds, -abs(_or_zero(one.effect.difference))))

    def table(self) -> tuple[list[str], list[list[object]]]:
        rows: list[list[object]] = []
        for one in self.ranked()[:SHOWN]:
            low, high = (end.rounded(4) for end in one.effect.bounds())
            effect, outcome = one.effect, one.outcome if one.holds else ""
            rows.append([one.id, effect.a, effect.b, effect.difference, low, high, outcome])
        return ["question", "A", "B", "B - A", "at least", "at most", "holds"], rows

    def sentences(self) -> list[str]:
        lines = [f"A: {self.a}. B: {self.b}. Score: {self.metric}; higher is worse."]
        if self.per_question:
            worse, better = (sum(one.outcome == kind for one in self.per_question) for kind in (WORSE, BETTER))
            effect = self.per_question[0].effect
            lines += [
                f"Worse in B: {worse} of {plural(len(self.per_question), 'question')}; better: {better}. This list has no "
                f"false entry {level(self.alpha)} (Holm, each direction at half), assuming {effect.assumes}.",
                f"Each interval of a difference holds {level(self.alpha)} by itself ({effect.method}).",
            ]
        else:
            lines.append("No question could be compared.")
        if self.pooled is not None:
            low, high = self.pooled.bounds(Covers.AVERAGE)
            lines.append(
                f"On average over {plural(len(self.per_question), 'question')}, B - A is "
                f"{rounded(self.pooled.difference, 4)}, from "
                f"{low.number(4)} to {high.number(4)} {low.level()} ({low.method}; {low.assumes}): "
                + ("the difference holds." if self.pooled_holds else "no difference is shown.")
            )
        if self.not_worse is not None:
            lines.append(self.not_worse.sentence())
        lines += [f"Note: {note}." for note in self.notes]
        for reason in dict.fromkeys(one.reason for one in self.not_compared):
            ids = [one.id for one in self.not_compared if one.reason == reason and one.id is not None]
            more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
            lines.append(f"Not compared: {reason}" + (f" ({', '.join(ids[:3])}{more})." if ids else "."))
        return lines


def _entry(metric: str, effect: Difference, holds: bool) -> dict[str, object]:
    same = {name: getattr(effect, name) for name in ("a", "b", "difference", "p_value", "method")}
    return {"metric": metric, "holds": holds, "ci_low": effect.low, "ci_high": effect.high} | same


def compare(
    a: Side,
    b: Side,
    alpha: float = 0.05,
    by: float | None = None,
    on: On = "questions",
    worst: bool = False,
) -> Comparison:
    """Compare two sides question by question and on average.

    Notes
    -----
    The method follows from recorded facts: the seeds, the engine and the stopping rule (`sides.relation`). A missing score
    widens the interval on both ends. The bounds of a side that a rule could stop early are bounds at the stop.
    """
    check_alpha(alpha)
    missing: list[NotCompared] = []
    notes = [
        f"{name}: {UNKNOWN_STOP if side.unknown_stop else STOPPED}"
        for side, name in ((a, "A"), (b, "B"))
        if side.stopped
    ]
    pairs: list[_Pair] = []
    if reason := _incomparable(a, b):
        missing.append(NotCompared(None, reason))
    else:
        for model, first, second in _models(a, b, missing):
            notes += _settings(model, first, second)
            pairs += _questions(model, first, second, a.kind == b.kind, missing)
    if not pairs:
        return Comparison(a.name, b.name, alpha, a.metric, (), None, tuple(missing), tuple(notes))
    binary = _binary(a, b, [scores for pair in pairs for scores in (pair.first, pair.second)])
    both = _Pairs(pairs, binary, (a.stopped, b.stopped))
    effects, pooled = both.effects(alpha), both.average(alpha)
    # Holm for "worse" and for "better", at half of alpha each
    p_values = [[one.p_above() for one in effects], [one.p_below() for one in effects]]
    worse, better = (holm(own, 0.0, alpha / 2)[0] for own in p_values)
    rows = [
        Compared(pair.id, pair.model, a.metric, effect, holds)
        for pair, effect, holds in zip(pairs, effects, (worse | better).tolist(), strict=True)
    ]
    if pooled is None:
        missing.append(NotCompared(None, "the average: the questions of a side have different numbers of answers"))
    return Comparison(
        a.name,
        b.name,
        alpha,
        a.metric,
        tuple(rows),
        pooled,
        tuple(missing),
        tuple(notes),
        None if by is None else both.not_worse(alpha, by, on),
        both.worst(alpha) if worst else None,
    )


@dataclass(frozen=True)
class _Pair:
    model: str
    id: str
    first: np.ndarray
    second: np.ndarray
    draws: Draws


@dataclass(frozen=True)
class _Pairs:
    """The questions of both sides; ``stopped``: which side a rule could stop."""

    pairs: Sequence[_Pair]
    binary: bool
    stopped: tuple[bool, bool]

    def effects(self, alpha: float) -> list[Difference]:
        work = progress(self.pairs, "compare", "questions") if len(self.pairs) > 100 else self.pairs
        return [difference(pair.first, pair.second, alpha, self.binary, self.stopped, pair.draws) for pair in work]

    def average(self, alpha: float) -> Difference | None:
        relations = {pair.draws for pair in self.pairs}
        return mean_of_differences(
            [pair.first for pair in self.pairs],
            [pair.second for pair in self.pairs],
            alpha,
            self.binary,
            groups=[pair.model for pair in self.pairs],
            stopped=self.stopped,
            draws=relations.pop() if len(relations) == 1 else "any",
        )

    def not_worse(self, alpha: float, by: float, on: On) -> NotWorse:
        """The upper ends, each at alpha: those of intervals at twice alpha."""
        both = min(2 * alpha, 0.5)
        if on == "average":
            pooled = self.average(both)
            return NotWorse(by, on, alpha, 1.0 if pooled is None else pooled.high, ())
        ends = {pair.id: effect.high for pair, effect in zip(self.pairs, self.effects(both), strict=True)}
        unproved = sorted((name for name, end in ends.items() if end > by), key=lambda name: -ends[name])
        return NotWorse(by, on, alpha, max(ends.values()), tuple(unproved))

    def worst(self, alpha: float) -> Bound:
        """An upper bound of B's largest mean: each question at alpha, without a correction."""
        filled = [np.nan_to_num(pair.second, nan=1.0) for pair in self.pairs]
        if self.stopped[1]:
            values, method = StoppedSamples(filled).uppers(alpha).tolist(), AT_THE_STOP
        elif self.binary:
            values, method = [float(binary_upper(own.sum(), len(own), alpha)) for own in filled], "Clopper-Pearson"
        else:
            values, method = [float(mean_upper(own[None], alpha)[0]) for own in filled], "betting"
        return Bound(max(values), "upper", alpha, Covers.WORST_PROMPT, Assumes.DRAWS_WITHIN, method)


def _incomparable(a: Side, b: Side) -> str | None:
    """The reason why the two sides cannot be compared at all, or None."""
    if a.metric != b.metric:
        return f"the scorers differ: {a.metric!r} in A, {b.metric!r} in B (name one with --score)"
    if None not in (a.scorer, b.scorer) and a.scorer != b.scorer:
        return f"the scorer {a.metric!r} has different parameters in A and B"
    if None not in (a.template, b.template) and a.template != b.template:
        return "the prompt templates of A and B differ"
    return None


def _models(a: Side, b: Side, missing: list[NotCompared]) -> Iterator[tuple[str, Scored, Scored]]:
    """The models that both sides have; if each side has a single model, the names need not match."""
    if len(a.models) == len(b.models) == 1:
        yield "", next(iter(a.models.values())), next(iter(b.models.values()))
        return
    for name in a.models:
        if name in b.models:
            yield name, a.models[name], b.models[name]
    for side, other, word in ((a, b, "A"), (b, a, "B")):
        for name in side.models:
            if name not in other.models:
                missing.append(NotCompared(None, f"the model {name} is in {word} only"))
    if not a.models.keys() & b.models.keys():
        raise BadInput(
            f"{a.name} has the models {', '.join(a.models)}, and {b.name} has {', '.join(b.models)}: no model is on both "
            "sides. Name data folders with a model in common."
        )


def _questions(
    model: str, first: Scored, second: Scored, same_kind: bool, missing: list[NotCompared]
) -> Iterator[_Pair]:
    prefix, draws = f"{model}/" if model else "", relation(first, second)
    for name, own in first.questions.items():
        other = second.questions.get(name)
        if other is None:
            missing.append(NotCompared(prefix + name, "the question is in A only"))
        elif not _same_text(own.text, other.text, same_kind):
            missing.append(NotCompared(prefix + name, "the text or prompt of the question differs in B"))
        else:
            yield _Pair(model, prefix + name, own.scores, other.scores, draws)
    for name in (name for name in second.questions if name not in first.questions):
        missing.append(NotCompared(prefix + name, "the question is in B only"))


def _same_text(a: str | None, b: str | None, same_kind: bool) -> bool:
    """Whether two texts ask the same question; a log holds the whole prompt, a folder of artifacts only the question."""
    if a is None or b is None or a == b:
        return True
    return not same_kind and (a.strip() in b or b.strip() in a)


def _settings(model: str, first: Scored, second: Scored) -> list[str]:
    changed = [
        f"{key} {first.settings[key]} in A, {second.settings[key]} in B"
        for key in first.settings
        if key in second.settings and first.settings[key] != second.settings[key] and key not in ("seed", "stop")
    ]
    return [f"the sampling differs{f' for {model}' if model else ''}: {', '.join(changed)}"] if changed else []


def _binary(a: Side, b: Side, scores: Sequence[np.ndarray]) -> bool:
    """Whether the scores are only 0 and 1, as the scorer declares. Without a declaration, the values decide."""
    declared = [side.binary for side in (a, b) if side.binary is not None]
    if False in declared:
        return False
    # A declared column that holds other values comes from a different scorer with the same name.
    return all(bool(np.isin(own[~np.isnan(own)], (0.0, 1.0)).all()) for own in scores)


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
