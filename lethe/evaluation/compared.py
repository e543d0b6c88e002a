"""A comparison of two runs: which differences hold over all questions together, with each effect and its interval; and the
ranks that several runs may have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np

from lethe.errors import BadInput, plural
from lethe.evaluation.scores import mean
from lethe.evaluation.sides import NotCompared, Pair, Side, binary_of, joined, stops
from lethe.progress import progress
from lethe.results.table import values_of
from lethe.statistics.betting import mean_upper
from lethe.statistics.bound import Assumes, Bound, Covers, level, rounded
from lethe.statistics.bounds import binary_upper
from lethe.statistics.checks import check_alpha
from lethe.statistics.many_prompts import holm, rank_ranges
from lethe.statistics.mean_difference import (
    Difference,
    difference,
    mean_of_differences,
    population_difference,
)
from lethe.statistics.sequential import METHOD as AT_THE_STOP
from lethe.statistics.sequential import StoppedSamples

HOLM = "holm"
SHOWN = 20  # rows in a table for people
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
    ``population`` is the difference over questions like these.
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
    population: Difference | None = None

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
        claim = self.not_worse
        return {
            **{name: getattr(self, name) for name in ("a", "b", "alpha", "metric", "worse")},
            **{name: values_of(getattr(self, name)) for name in ("not_compared", "notes", "worst_of_b")},
            "correction": HOLM,
            "per_question": [one.row() for one in self.per_question],
            **{
                name: _average(self.metric, effect, holds, covers, len(self.per_question))
                for name, effect, holds, covers in self._averages()
            },
            "not_worse": claim and {**values_of(claim), "holds": claim.holds},
        }

    def _averages(self) -> list[tuple[str, Difference | None, bool, Covers]]:
        """The averages over these questions and over questions like these, each a separate claim at alpha."""
        both = (("pooled", self.pooled, Covers.AVERAGE), ("population", self.population, Covers.POPULATION))
        return [(name, one, one is not None and one.p_value <= self.alpha, covers) for name, one, covers in both]

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
        for _, average, holds, covers in self._averages():
            if average is not None:
                low, high = average.bounds(covers)
                over = low.on(f"the {plural(len(self.per_question), 'question')}").capitalize()
                lines.append(
                    f"{over}, B - A is {rounded(average.difference, 4)}, from "
                    f"{low.number(4)} to {high.number(4)} {low.level()} ({low.method}; {low.assumes}): "
                    + ("the difference holds." if holds else "no difference is shown.")
                )
        if self.not_worse is not None:
            lines.append(self.not_worse.sentence())
        return [*lines, *_remarks(self.notes, self.not_compared)]


def _remarks(notes: Sequence[str], not_compared: Sequence[NotCompared]) -> list[str]:
    lines = [f"Note: {note}." for note in notes]
    for reason in dict.fromkeys(one.reason for one in not_compared):
        ids = [one.id for one in not_compared if one.reason == reason and one.id is not None]
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        lines.append(f"Not compared: {reason}" + (f" ({', '.join(ids[:3])}{more})." if ids else "."))
    return lines


def _entry(metric: str, effect: Difference, holds: bool) -> dict[str, object]:
    same = {name: getattr(effect, name) for name in ("a", "b", "difference", "p_value", "method")}
    return {"metric": metric, "holds": holds, "ci_low": effect.low, "ci_high": effect.high} | same


def _average(
    metric: str, effect: Difference | None, holds: bool, covers: Covers, questions: int
) -> dict[str, object] | None:
    if effect is None:
        return None
    about = {"questions": questions, "covers": str(covers), "assumes": effect.assumes}
    return _entry(metric, effect, holds) | about


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
    notes = stops((a, b), "AB")
    pairs = joined(a, b, missing, notes)
    if not pairs:
        return Comparison(a.name, b.name, alpha, a.metric, (), None, tuple(missing), tuple(notes))
    both = _Pairs.of(a, b, pairs)
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
        both.population(alpha),
    )


@dataclass(frozen=True)
class _Pairs:
    """The questions of both sides; ``stopped``: which side a rule could stop."""

    pairs: Sequence[Pair]
    binary: bool
    stopped: tuple[bool, bool]

    @classmethod
    def of(cls, a: Side, b: Side, pairs: Sequence[Pair]) -> _Pairs:
        binary = binary_of(a, b, [scores for pair in pairs for scores in (pair.first, pair.second)])
        return cls(pairs, binary, (a.stopped, b.stopped))

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

    def population(self, alpha: float) -> Difference | None:
        """None where a rule could stop a side, whose means it biases, and for one question asked of several models."""
        if any(self.stopped) or len({pair.model for pair in self.pairs}) > 1:
            return None
        sides = [pair.first for pair in self.pairs], [pair.second for pair in self.pairs]
        return population_difference(*sides, alpha, self.binary)

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


Range = tuple[int, int]
Effects = dict[tuple[int, int], Difference | None]


@dataclass(frozen=True)
class Ranks:
    """What is proved of all pairs of runs together, over these questions or over questions like these (``covers``).

    ``effects`` are the differences by the places of two runs; ``higher[i, j]`` says that run i is proved to score higher than
    run j. ``ranges`` is None where ranks are not proved.
    """

    covers: Covers
    effects: Effects
    higher: np.ndarray
    ranges: tuple[Range, ...] | None

    @classmethod
    def of(cls, covers: Covers, effects: Effects, runs: int, alpha: float, ranked: bool = True) -> Ranks:
        """Holm over the pairs in both directions; ``ranked``: whether the tests are tests of means."""
        p_values, off = np.ones((runs, runs)), ~np.eye(runs, dtype=bool)
        for (i, j), effect in effects.items():
            if effect is not None:
                p_values[j, i], p_values[i, j] = effect.p_above(), effect.p_below()
        higher = np.zeros((runs, runs), dtype=bool)
        higher[off] = holm(p_values[off], 0.0, alpha)[0]
        ranked &= None not in effects.values()
        return cls(covers, effects, higher, tuple(rank_ranges(higher)) if ranked else None)

    def differ(self, i: int, j: int) -> bool:
        return bool(self.higher[i, j] or self.higher[j, i])


@dataclass(frozen=True)
class Ranking:
    """The result of `rank`: ``pooled`` over these questions, ``population`` over questions like these."""

    runs: tuple[str, ...]
    means: tuple[float, ...]
    alpha: float
    metric: str
    questions: int
    pooled: Ranks
    population: Ranks
    not_compared: tuple[NotCompared, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        both = {"pooled": self.pooled, "population": self.population}
        runs = [
            {"run": run, "mean": values_of(mean)}
            | {f"rank_{name}": ranks.ranges and list(ranks.ranges[place]) for name, ranks in both.items()}
            for place, (run, mean) in enumerate(zip(self.runs, self.means, strict=True))
        ]
        pairs = [
            {"runs": [self.runs[i], self.runs[j]]}
            | {
                name: _average(self.metric, ranks.effects[i, j], ranks.differ(i, j), ranks.covers, self.questions)
                for name, ranks in both.items()
            }
            for i, j in self.pooled.effects
        ]
        return {
            **{name: getattr(self, name) for name in ("alpha", "metric", "questions")},
            **{name: values_of(getattr(self, name)) for name in ("not_compared", "notes")},
            "correction": HOLM,
            "runs": runs,
            "pairs": pairs,
        }

    def order(self) -> list[int]:
        """The runs by their means, the lowest first."""
        return sorted(range(len(self.runs)), key=lambda place: _or_zero(self.means[place]))

    def table(self) -> tuple[list[str], list[list[object]]]:
        both = (self.pooled.ranges, self.population.ranges)
        shown = [[_range(ranges[place]) if ranges else None for ranges in both] for place in range(len(self.runs))]
        rows: list[list[object]] = [[self.runs[place], self.means[place], *shown[place]] for place in self.order()]
        return ["run", "mean", "rank, these questions", "rank, questions like these"], rows

    def pair_table(self) -> tuple[list[str], list[list[object]]]:
        rows: list[list[object]] = []
        for ranks, about in ((self.pooled, "these questions"), (self.population, "questions like these")):
            for (i, j), effect in ranks.effects.items():
                if effect is not None:
                    low, high = (end.rounded(4) for end in effect.bounds())
                    differ = "differ" if ranks.differ(i, j) else ""
                    rows.append([self.runs[i], self.runs[j], about, effect.difference, low, high, differ])
        return ["A", "B", "over", "B - A", "at least", "at most", "holds"], rows

    def sentences(self) -> list[str]:
        size = f"the {plural(self.questions, 'question')}"
        lines = [f"Score: {self.metric}; higher is worse, and rank 1 has the lowest mean over {size}."]
        for ranks in (self.pooled, self.population):
            effect = next(filter(None, ranks.effects.values()), None)
            if effect is not None:
                count = f"{int(ranks.higher.sum())} of {plural(len(ranks.effects), 'pair')}"
                also = " and the ranges of ranks" if ranks.ranges else ""
                over = effect.bounds(ranks.covers)[0].on(size).capitalize()
                lines.append(
                    f"{over}, {count} differ. These pairs{also} hold together "
                    f"{level(self.alpha)} (Holm, both directions), assuming {effect.assumes}."
                )
        if not self.pooled.ranges:
            lines.append("Ranks over these questions need equally many answers to each, at least two.")
        return [*lines, *_remarks(self.notes, self.not_compared)]


def _range(ranks: Range) -> str:
    return f"{ranks[0]} to {ranks[1]}" if ranks[0] < ranks[1] else str(ranks[0])


def rank(sides: Sequence[Side], alpha: float = 0.05) -> Ranking:
    """The ranks that each run may have by its mean over the questions that all runs have."""
    check_alpha(alpha)
    names, missing, notes = [side.name for side in sides], [], stops(sides, (side.name for side in sides))
    found: dict[tuple[int, int], dict[str, Pair]] = {}
    for (i, a), (j, b) in combinations(enumerate(sides), 2):
        of_pair: list[NotCompared] = []
        settings: list[str] = []
        found[i, j] = {pair.id: pair for pair in joined(a, b, of_pair, settings)}
        about = f"{a.name} (A) and {b.name} (B): "
        notes += [about + note for note in settings if i == 0]
        missing += [replace(one, reason=about + one.reason) for one in of_pair if i == 0 or one.id is None]
    common = [name for name in found[0, 1] if all(name in own for own in found.values())]
    if not common:
        reasons = "; ".join(dict.fromkeys(one.reason for one in missing))
        raise BadInput(f"{', '.join(names)}: no question is common to all runs ({reasons}).")
    pairs = {
        (i, j): _Pairs.of(sides[i], sides[j], [own[name] for name in common]) for (i, j), own in found.items()
    }
    pooled, population = (
        {places: getattr(both, scope)(alpha) for places, both in pairs.items()}
        for scope in ("average", "population")
    )
    # With one answer to each question the tests are sign tests, not tests of means.
    several = any(len(pair.first) > 1 for pair in pairs[0, 1].pairs)
    means = [mean(mean(pair.first) for pair in pairs[0, 1].pairs)]
    means += [mean(mean(pair.second) for pair in pairs[0, place].pairs) for place in range(1, len(sides))]
    return Ranking(
        tuple(names),
        tuple(means),
        alpha,
        sides[0].metric,
        len(common),
        Ranks.of(Covers.AVERAGE, pooled, len(sides), alpha, several),
        Ranks.of(Covers.POPULATION, population, len(sides), alpha),
        tuple(missing),
        tuple(notes),
    )


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
