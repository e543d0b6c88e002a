"""A comparison of two runs: which differences hold over all questions together, with each effect and its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.errors import BadInput, plural
from lethe.evaluation.sides import Answers, Scored, Side
from lethe.progress import progress
from lethe.statistics.bound import Covers, level, rounded
from lethe.statistics.checks import check_alpha
from lethe.statistics.many_prompts import holm
from lethe.statistics.mean_difference import Difference, difference, mean_of_differences

HOLM = "holm"
SHOWN = 20  # rows in a table for people
STOPPED = "a rule could stop this side early; its bounds hold at the stop, but the rule biases its plain means"
WORSE, BETTER, NEITHER = "worse", "better", "not shown"


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
        if not self.holds:
            return NEITHER
        return WORSE if self.effect.difference > 0 else BETTER

    def row(self) -> dict[str, object]:
        """The entry of ``per_question``."""
        return {
            "id": self.id,
            "model": self.model or None,
            "metric": self.metric,
            **_effect(self.effect, self.holds),
        }


@dataclass(frozen=True)
class NotCompared:
    """A question, a model (``id`` None) or the average that cannot be compared, with the reason."""

    id: str | None
    reason: str


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`; ``notes`` name the sampling settings that differ."""

    a: str
    b: str
    alpha: float
    metric: str
    per_question: tuple[Compared, ...]
    pooled: Difference | None
    pooled_questions: int
    not_compared: tuple[NotCompared, ...]
    notes: tuple[str, ...]

    @property
    def pooled_holds(self) -> bool:
        """Whether the average differs: a separate claim at alpha."""
        return self.pooled is not None and self.pooled.p_value <= self.alpha

    @property
    def worse(self) -> bool:
        """Whether a difference that holds shows B to be worse, on some question or on average."""
        pooled = self.pooled_holds and self.pooled is not None and self.pooled.difference > 0
        return pooled or any(one.outcome == WORSE for one in self.per_question)

    def as_json(self) -> dict[str, object]:
        """The keys of `lethe compare --json`."""
        pooled = None
        if self.pooled is not None:
            shown = _effect(self.pooled, self.pooled_holds)
            pooled = {"metric": self.metric, **shown, "questions": self.pooled_questions}
        return {
            "alpha": self.alpha,
            "correction": HOLM,
            "metric": self.metric,
            "a": self.a,
            "b": self.b,
            "per_question": [one.row() for one in self.per_question],
            "pooled": pooled,
            "not_compared": [{"id": one.id, "reason": one.reason} for one in self.not_compared],
            "worse": self.worse,
            "notes": list(self.notes),
        }

    def ranked(self) -> list[Compared]:
        """The questions, those whose difference holds first, in descending order of the difference."""
        return sorted(self.per_question, key=lambda one: (not one.holds, -abs(_or_zero(one.effect.difference))))

    def table(self) -> tuple[list[str], list[list[object]]]:
        """The head and the first rows of the table for people."""
        head = ["question", "A", "B", "B - A", "at least", "at most", "holds"]
        return head, [
            [
                one.id,
                one.effect.a,
                one.effect.b,
                one.effect.difference,
                *(end.rounded(4) for end in one.effect.bounds()),
                one.outcome if one.holds else "",
            ]
            for one in self.ranked()[:SHOWN]
        ]

    def sentences(self) -> list[str]:
        """The differences that hold, and those that do not, in words."""
        lines = [f"A: {self.a}. B: {self.b}. Score: {self.metric}; higher is worse."]
        if self.per_question:
            worse, better = (sum(one.outcome == kind for one in self.per_question) for kind in (WORSE, BETTER))
            effect = self.per_question[0].effect
            lines += [
                f"Worse in B: {worse} of {plural(len(self.per_question), 'question')}; better: {better}. This list has no "
                f"false entry {level(self.alpha)} (Holm), assuming {effect.assumes}.",
                f"Each interval of a difference holds {level(self.alpha)} by itself ({effect.method}).",
            ]
        else:
            lines.append("No question could be compared.")
        if self.pooled is not None:
            low, high = self.pooled.bounds(Covers.AVERAGE)
            lines.append(
                f"On average over {plural(self.pooled_questions, 'question')}, B - A is "
                f"{rounded(self.pooled.difference, 4)}, from "
                f"{low.number(4)} to {high.number(4)} {low.level()} ({low.method}; {low.assumes}): "
                + ("the difference holds." if self.pooled_holds else "no difference is shown.")
            )
        lines += [f"Note: {note}." for note in self.notes]
        reasons = list(dict.fromkeys(one.reason for one in self.not_compared))
        for reason in reasons:
            ids = [one.id for one in self.not_compared if one.reason == reason and one.id is not None]
            more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
            lines.append(f"Not compared: {reason}" + (f" ({', '.join(ids[:3])}{more})." if ids else "."))
        return lines


def compare(a: Side, b: Side, alpha: float = 0.05) -> Comparison:
    """Compare two sides question by question and on average.

    Notes
    -----
    The answers of the two sides may share random numbers: neither independence of the sides nor a pairing is assumed. A
    missing score widens the interval on both ends. The bounds of a side that a rule could stop early are bounds at the stop.
    """
    check_alpha(alpha)
    missing: list[NotCompared] = []
    notes = [f"{name}: {STOPPED}" for side, name in ((a, "A"), (b, "B")) if side.stopped]
    stopped = (a.stopped, b.stopped)
    pairs: list[tuple[str, str, Answers, Answers]] = []
    if reason := _incomparable(a, b):
        missing.append(NotCompared(None, reason))
    else:
        for model, first, second in _models(a, b, missing):
            notes += _settings(model, first, second)
            pairs += [(model, *pair) for pair in _questions(first, second, a.kind == b.kind, missing, model)]
    binary = bool(pairs) and _binary(a, b, [own.scores for *_, first, second in pairs for own in (first, second)])
    work = progress(pairs, "compare", "questions") if len(pairs) > 100 else pairs
    effects = [difference(first.scores, second.scores, alpha, binary, stopped) for _, _, first, second in work]
    holds = holm([effect.p_value for effect in effects], 0.0, alpha)[0] if effects else np.zeros(0, dtype=bool)
    rows = tuple(
        Compared(name, model, a.metric, effect, bool(held))
        for (model, name, _, _), effect, held in zip(pairs, effects, holds, strict=True)
    )
    pooled = None
    if pairs:
        pooled = mean_of_differences(
            [first.scores for *_, first, _ in pairs],
            [second.scores for *_, second in pairs],
            alpha,
            binary,
            groups=[model for model, *_ in pairs],
            stopped=stopped,
        )
        if pooled is None:
            reason = "the average: the questions of a side have different numbers of answers, or one each"
            missing.append(NotCompared(None, reason))
    return Comparison(a.name, b.name, alpha, a.metric, rows, pooled, len(pairs), tuple(missing), tuple(notes))


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
    first: Scored, second: Scored, same_kind: bool, missing: list[NotCompared], model: str
) -> Iterator[tuple[str, Answers, Answers]]:
    prefix = f"{model}/" if model else ""
    for name, own in first.questions.items():
        other = second.questions.get(name)
        if other is None:
            missing.append(NotCompared(prefix + name, "the question is in A only"))
        elif not _same_text(own.text, other.text, same_kind):
            missing.append(NotCompared(prefix + name, "the text or prompt of the question differs in B"))
        else:
            yield prefix + name, own, other
    for name in second.questions:
        if name not in first.questions:
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
        if key in second.settings and first.settings[key] != second.settings[key] and key != "seed"
    ]
    return [f"the sampling differs{f' for {model}' if model else ''}: {', '.join(changed)}"] if changed else []


def _binary(a: Side, b: Side, scores: Sequence[np.ndarray]) -> bool:
    """Whether the scores are only 0 and 1, as the scorer declares. Without a declaration, the values decide."""
    declared = [side.binary for side in (a, b) if side.binary is not None]
    if False in declared:
        return False
    # A declared column that holds other values comes from a different scorer with the same name.
    return all(bool(np.isin(own[~np.isnan(own)], (0.0, 1.0)).all()) for own in scores)


def _effect(effect: Difference, holds: bool) -> dict[str, object]:
    return {
        "a": effect.a,
        "b": effect.b,
        "difference": effect.difference,
        "ci_low": effect.low,
        "ci_high": effect.high,
        "p_value": effect.p_value,
        "holds": holds,
        "method": effect.method,
    }


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
