"""What changed between two runs of the same models: only what the ends of both runs prove.

With probability 1 - alpha every change on the list is real, for better or worse. Each comparison (of a question, or of a
model's average) has four ends, two of each run, and every end takes an equal part of alpha (union bound). This assumes what
the ends assume, and nothing about dependence between runs, models or questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lethe.results.ends import SAME_DRAWS, Ends
from lethe.results.evidence import AtLevel, BothEnds
from lethe.results.table import Numbers, Result, Results
from lethe.statistics.two_sample import kl_upper

ENDS = 4  # of a comparison: two of the earlier run, two of the later one
EXPLORED = ("exact", "tree")  # bases of exact bounds
Measured = Literal["leak", "score"]


@dataclass(frozen=True)
class ProvedChange:
    """One model leaks more (``worse``) or less than before.

    ``questions`` counts the questions of which this is proved. ``question`` is the one with the largest proved difference,
    None for the average over the questions. An increase is from at most ``before`` to at least ``after``, a decrease from at
    least ``before`` to at most ``after``.
    """

    model: str
    quantity: Measured
    question: str | None
    questions: int
    before: float
    after: float
    worse: bool


def proved_changes(
    old: Results, new: Results, models: Iterable[str], alpha: float, exactly: bool
) -> list[ProvedChange]:
    """The models of which some question, or the average over the questions, is proved to leak more or less than before.

    Any change on the list is false with probability at most ``alpha``, from 1e-90 to 0.5. ``exactly``: the exact bounds are
    about the same leaks as the sampled answers, so that both can be used. Where no scorer gives 0 or 1, mean scores take the
    place of leak probabilities. Models that one run lacks are left out, and those of `judged_anew`.
    """
    anew = judged_anew(old, new, models)
    named = [(name, old.rows(name), new.rows(name)) for name in models if name not in anew]
    pairs = [pair for name, before, after in named if (pair := _pair(name, before, after, exactly))]
    level = alpha / ENDS / max(1, sum(len(pair.items) + 1 for pair in pairs))
    return [change for pair in pairs for change in pair.changes(level)]


def judged_anew(old: Results, new: Results, models: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The scorers before and after, by model, of the models that another scorer judged in the earlier run.

    Their words and numbers are about other events, so no difference between them says that a model changed.
    """
    both = {name: (old.scorers(name), new.scorers(name)) for name in models}
    return {
        name: (_scorers(one), _scorers(other))
        for name, (one, other) in both.items()
        if one and one != other
    }


def _scorers(judged_by: Mapping[str, str | None]) -> str:
    return (
        " and ".join(dict.fromkeys(scorer for scorer in judged_by.values() if scorer))
        or "no scorer"
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """One run of a model: the ends of each question, and what bounds the average besides."""

    ends: Ends
    average: _Draws | None

    def interval(self, level: float) -> BothEnds:
        """(m + 1,) lower and upper ends, those of the average last."""
        lower, upper = self.ends.lower(level), self.ends.upper(level)
        low, high = lower.mean(), upper.mean()  # the ends of all questions hold together
        if self.average:
            ends = self.average.interval(level)
            low, high = max(low, ends[0][0]), min(high, ends[1][0])
        return np.append(lower, low), np.append(upper, max(low, high))


@dataclass(frozen=True, eq=False)
class _Draws:
    """Sums of independent values in [0, 1]: with missing values as 0 and as 1, and the number of draws, each (m,)."""

    low: np.ndarray
    high: np.ndarray
    n: np.ndarray

    def interval(self, level: float) -> BothEnds:
        """Ends of the mean expectation: Chernoff's bound, which holds for unequal expectations (Hoeffding, 1963)."""
        rows = zip(self.low / self.n, self.high / self.n, -math.log(level) / self.n, strict=True)
        ends = [
            (1 - kl_upper(1 - low, budget), kl_upper(high, budget)) for low, high, budget in rows
        ]
        low, high = np.array(ends).reshape(-1, 2).T
        return low, high

    def together(self) -> _Draws | None:
        """The draws of all questions as one, whose mean is the average; None for unequal numbers of draws."""
        if len(set(self.n)) != 1:
            return None
        return _Draws(*(np.array([own.sum()]) for own in (self.low, self.high, self.n)))


@dataclass(frozen=True, eq=False)
class _Pair:
    """One model in both runs, on the questions that both measured."""

    model: str
    quantity: Measured
    items: tuple[str, ...]
    before: _Side
    after: _Side

    def changes(self, level: float) -> list[ProvedChange]:
        (low, high), (new_low, new_high) = self.before.interval(level), self.after.interval(level)
        changes = []
        for before, after, gap, worse in (
            (high, new_low, new_low - high, True),
            (low, new_high, low - new_high, False),
        ):
            questions = gap[:-1] > 0
            if (gap > 0).any():
                place = (
                    int(np.argmax(np.where(questions, gap[:-1], -np.inf)))
                    if questions.any()
                    else -1
                )
                item = self.items[place] if questions.any() else None
                ends = float(before[place]), float(after[place])
                count = int(questions.sum())
                changes.append(ProvedChange(self.model, self.quantity, item, count, *ends, worse))
        return changes


def _pair(model: str, old: Sequence[Result], new: Sequence[Result], exactly: bool) -> _Pair | None:
    sides = [_about(rows, exactly) for rows in (old, new)]
    quantities: tuple[Measured, ...] = ("leak", "score")
    for quantity in quantities:
        before, after = (_questions(rows, quantity) for rows in sides)
        if items := tuple(item for item in after if item in before):
            build = _leaks if quantity == "leak" else _scores
            return _Pair(model, quantity, items, build(sides[0], items), build(sides[1], items))
    return None


def _about(rows: Sequence[Result], exactly: bool) -> list[Result]:
    """The rows of questions; exact bounds only if they are about the leaks of the samples, as any machine computes them."""
    note = any(row.facts.get("how", {}).get("note") for row in rows if row.quantity == "queried")
    joined = exactly and not note
    return [
        row for row in rows if row.scope == "question" and (joined or row.basis not in EXPLORED)
    ]


def _questions(rows: Sequence[Result], quantity: Measured) -> list[str]:
    """The questions with drawn answers that bound the quantity, in their order."""
    drawn = [
        row
        for row in rows
        if row.quantity == quantity and row.basis in SAME_DRAWS and row.upper is not None
    ]
    return list(dict.fromkeys(str(row.item) for row in drawn))


def _leaks(rows: Sequence[Result], items: Sequence[str]) -> _Side:
    counted = {
        row.item: row.facts for row in rows if (row.quantity, row.basis) == ("leak", "sampled")
    }
    own = [counted.get(item, {}) for item in items]
    draws = _draws([_sums(each.get("leaks"), each.get("n"), each.get("missing")) for each in own])
    return _Side(Ends.of_rows(rows, items), draws and draws.together())


def _scores(rows: Sequence[Result], items: Sequence[str]) -> _Side:
    of = Results({"": tuple(rows)}).questions("")
    draws = _draws([_score(of[item]) for item in items])
    evidence = [AtLevel.of(draws.interval, np.full(len(items), True))] if draws else []
    return _Side(Ends.of_arrays(items, others=evidence), draws and draws.together())


def _score(question: Numbers) -> tuple[float, float, int] | None:
    row, missing = question.row("score"), question.row("unscored")
    if (
        row is None or row.estimate is None or row.n is None
    ):  # n is unknown where a rule could stop the draws
        return None
    absent = int(missing.estimate or 0) if missing else 0
    return _sums(row.estimate * (row.n - absent), row.n, absent)


def _sums(low: float | None, n: int | None, missing: int | None) -> tuple[float, float, int] | None:
    return None if low is None or not n else (low, low + (missing or 0), n)


def _draws(sums: Sequence[tuple[float, float, int] | None]) -> _Draws | None:
    """The draws of all questions; None where those of one are unknown."""
    if None in sums:
        return None
    return _Draws(*np.array(sums, dtype=np.float64).reshape(-1, 3).T)
