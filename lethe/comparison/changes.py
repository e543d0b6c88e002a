"""What changed between two runs of the same models: only what the ends of both runs prove.

With probability 1 - alpha every change on the list is real, for better or worse. Each comparison (of a question, or of a
model's average) has four ends, two of each run, and every end takes an equal part of alpha (union bound). This assumes what
the ends assume, and nothing about dependence between runs, models or questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lethe.io.files import Json
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
    models = list(models)
    anew = judged_anew(old, new, models)
    pairs = []
    for name in models:
        if name not in anew:
            pair = _pair(name, old.rows(name), new.rows(name), exactly)
            if pair:
                pairs.append(pair)
    comparisons = sum(len(pair.items) + 1 for pair in pairs)  # each question, and the average
    level = alpha / ENDS / max(1, comparisons)
    changes: list[ProvedChange] = []
    for pair in pairs:
        changes += pair.changes(level)
    return changes


def judged_anew(old: Results, new: Results, models: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The scorers before and after, by model, of the models that another scorer judged in the earlier run.

    Their words and numbers are about other events, so no difference between them says that a model changed.
    """
    anew = {}
    for name in models:
        before, after = old.scorers(name), new.scorers(name)
        if before and before != after:
            anew[name] = (_scorers(before), _scorers(after))
    return anew


def _scorers(judged_by: Mapping[str, str | None]) -> str:
    names = dict.fromkeys(scorer for scorer in judged_by.values() if scorer)
    return " and ".join(names) or "no scorer"


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
        lower, upper = np.zeros(len(self.n)), np.ones(len(self.n))
        for place, n in enumerate(self.n):
            budget = -math.log(level) / n
            lower[place] = 1 - kl_upper(1 - self.low[place] / n, budget)
            upper[place] = kl_upper(self.high[place] / n, budget)
        return lower, upper

    def together(self) -> _Draws | None:
        """The draws of all questions as one, whose mean is the average; None for unequal numbers of draws."""
        if len(set(self.n)) != 1:
            return None
        return _Draws(*(np.array([sums.sum()]) for sums in (self.low, self.high, self.n)))


@dataclass(frozen=True, eq=False)
class _Pair:
    """One model in both runs, on the questions that both measured."""

    model: str
    quantity: Measured
    items: tuple[str, ...]
    before: _Side
    after: _Side

    def changes(self, level: float) -> list[ProvedChange]:
        """At most two changes: some question or the average is worse, and some is better."""
        low, high = self.before.interval(level)
        new_low, new_high = self.after.interval(level)
        worse = self._change(high, new_low, new_low - high, worse=True)
        better = self._change(low, new_high, low - new_high, worse=False)
        return [change for change in (worse, better) if change]

    def _change(
        self, before: np.ndarray, after: np.ndarray, gap: np.ndarray, worse: bool
    ) -> ProvedChange | None:
        """The change with the largest proved difference; ``gap``, (m + 1,), has that of the average last."""
        if not (gap > 0).any():
            return None
        of_questions = gap[:-1]
        proved = int((of_questions > 0).sum())
        place, item = -1, None  # the average
        if proved:
            place = int(np.argmax(of_questions))
            item = self.items[place]
        return ProvedChange(
            model=self.model,
            quantity=self.quantity,
            question=item,
            questions=proved,
            before=float(before[place]),
            after=float(after[place]),
            worse=worse,
        )


def _pair(model: str, old: Sequence[Result], new: Sequence[Result], exactly: bool) -> _Pair | None:
    """The model in both runs, by leaks where both runs judged some of the same questions, else by scores."""
    old, new = about_the_same(old, new, exactly)
    items = _common(old, new, "leak")
    if items:
        return _Pair(model, "leak", items, _leaks(old, items), _leaks(new, items))
    items = _common(old, new, "score")
    if items:
        return _Pair(model, "score", items, _scores(old, items), _scores(new, items))
    return None


def about_the_same(
    old: Sequence[Result], new: Sequence[Result], exactly: bool
) -> tuple[list[Result], list[Result]]:
    """The rows of questions of two runs that are about the same events.

    Exact bounds stay only where they are about the leaks of the sampled answers (``exactly``). A person's labels and a
    scorer judge other events: labels stay where both runs have them for a question, and then nothing else of its leaks.
    """
    before, after = _about(old, exactly), _about(new, exactly)
    labelled = _labelled(before) & _labelled(after)
    return _judged_alike(before, labelled), _judged_alike(after, labelled)


def _labelled(rows: Sequence[Result]) -> set[str | None]:
    return {row.item for row in rows if (row.quantity, row.basis) == ("leak", "labelled")}


def _judged_alike(rows: Sequence[Result], labelled: Set[str | None]) -> list[Result]:
    """The rows whose leaks a person judged in the questions ``labelled``, and a scorer in the others."""
    kept = []
    for row in rows:
        by_person = row.basis == "labelled"
        if row.quantity != "leak" or by_person == (row.item in labelled):
            kept.append(row)
    return kept


def _common(old: Sequence[Result], new: Sequence[Result], quantity: Measured) -> tuple[str, ...]:
    """The questions of which both runs bound the quantity, in the order of the new one."""
    before = set(_questions(old, quantity))
    return tuple(item for item in _questions(new, quantity) if item in before)


def _about(rows: Sequence[Result], exactly: bool) -> list[Result]:
    """The rows of questions; exact bounds only if they are about the leaks of the samples, as any machine computes them."""
    for row in rows:
        if row.quantity == "queried" and row.facts.get("how", {}).get("note"):
            exactly = False
    of_questions = [row for row in rows if row.scope == "question"]
    if exactly:
        return of_questions
    return [row for row in of_questions if row.basis not in EXPLORED]


def _questions(rows: Sequence[Result], quantity: Measured) -> list[str]:
    """The questions with drawn answers that bound the quantity, in their order."""
    items: dict[str, None] = {}
    for row in rows:
        if row.quantity == quantity and row.basis in SAME_DRAWS and row.upper is not None:
            items[str(row.item)] = None
    return list(items)


def _leaks(rows: Sequence[Result], items: Sequence[str]) -> _Side:
    counts: dict[str | None, Mapping[str, Json]] = {}
    for row in rows:
        if (row.quantity, row.basis) == ("leak", "sampled"):
            counts[row.item] = row.facts
    sums = []
    for item in items:
        facts = counts.get(item, {})
        sums.append(_sums(facts.get("leaks"), facts.get("n"), facts.get("missing")))
    draws = _draws(sums)
    return _Side(Ends.of_rows(rows, items), draws and draws.together())


def _scores(rows: Sequence[Result], items: Sequence[str]) -> _Side:
    questions = Results({"": tuple(rows)}).questions("")
    draws = _draws([_score(questions[item]) for item in items])
    evidence = [AtLevel.of(draws.interval, np.full(len(items), True))] if draws else []
    return _Side(Ends.of_arrays(items, others=evidence), draws and draws.together())


def _score(question: Numbers) -> tuple[float, float, int] | None:
    row, missing = question.row("score"), question.row("unscored")
    # n is unknown where a rule could stop the draws
    if row is None or row.estimate is None or row.n is None:
        return None
    absent = int(missing.estimate or 0) if missing else 0
    return _sums(row.estimate * (row.n - absent), row.n, absent)


def _sums(low: float | None, n: int | None, missing: int | None) -> tuple[float, float, int] | None:
    """The sums with missing values as 0 and as 1, and the number of draws; None where they are not known."""
    if low is None or not n:
        return None
    return low, low + (missing or 0), n


def _draws(sums: Sequence[tuple[float, float, int] | None]) -> _Draws | None:
    """The draws of all questions; None where those of one are unknown."""
    if None in sums:
        return None
    return _Draws(*np.array(sums, dtype=np.float64).reshape(-1, 3).T)
