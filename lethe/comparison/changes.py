"""What changed between two runs of the same models: only what the answers of both runs prove.

Each question that both runs judged has an e-value against "the model leaks at most as often as in the run before":
exp(`lethe.statistics.anytime.log_beyond`) of the counts of both runs, where the draws of the two are independent. Other
evidence (answer trees, graded scores, draws that share random numbers) has a fixed level: where its ends at level a refute
the null, its e-value is 1 / a, else 0. The mean of e-values is an e-value whatever their dependence, so if no question of no
model leaks more than before, the mean reaches 1 / alpha with probability at most alpha. "Better" is the mirror image, with an
alpha of its own. Questions are named by closed testing, at the same alpha.

Both alphas are of one pair of runs. The same weights, drawn in the same way, are not compared at all: whatever their answers
are, the model did not change.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lethe.io.files import Json
from lethe.results.ends import SAME_DRAWS, Ends, counted_rows
from lethe.results.evidence import AtLevel, BothEnds
from lethe.results.table import Numbers, Result, Results
from lethe.statistics.anytime import (
    LN2,
    ROUNDING,
    Counts,
    is_reached,
    log_e_leaks,
    log_mean,
    named,
)
from lethe.statistics.two_sample import kl_upper

EXPLORED = ("exact", "tree")  # bases of exact bounds
# So that ends at their share of alpha reach a goal that allows for rounding.
SLACK = math.exp(-2 * ROUNDING)
Measured = Literal["leak", "score"]


@dataclass(frozen=True)
class ChangedQuestion:
    """One question of a model in two runs: that it leaks more often (``worse``) or less often than before.

    ``log_e`` is ln of its e-value. ``before`` and ``after`` are the shares of leaks in the answers of both runs; with
    ``by_ends`` they are ends: an increase is from at most ``before`` to at least ``after``, a decrease from at least
    ``before`` to at most ``after``. Of a proved difference, ``questions`` counts the questions of the model of which it is
    proved one by one, this one having the most evidence; 0 where the mean over all questions of all models proves that some
    of them changed.
    """

    model: str
    quantity: Measured
    question: str
    worse: bool
    log_e: float
    before: float
    after: float
    by_ends: bool
    questions: int = 0


@dataclass(frozen=True)
class Changes:
    """What the questions of both runs prove together.

    ``log_e_worse`` and ``log_e_better`` are ln of the mean e-value over the ``questions`` of all models, each a proof where
    it reaches ``log_goal``, which is ln(1 / alpha); None where no question was compared.
    """

    questions: int
    log_goal: float
    log_e_worse: float | None
    log_e_better: float | None
    proved: tuple[ChangedQuestion, ...]


def proved_changes(
    old: Results,
    new: Results,
    models: Iterable[str],
    alpha: float,
    exactly: bool,
    independent: Collection[str] = (),
) -> Changes:
    """What is proved of ``models``, which should not have the weights and the drawing law of the run before.

    Where no scorer gives 0 or 1, mean scores take the place of leak probabilities. Models that one run lacks are left out,
    and those of `judged_anew`.

    Parameters
    ----------
    old, new
        The rows of both runs.
    models
        The models to compare.
    alpha
        The largest probability of a false increase, and of a false decrease, from 1e-90 to 0.5.
    exactly
        Whether the exact bounds are about the same leaks as the sampled answers, so that both can be used.
    independent
        The models whose two runs drew from independent random numbers. The counts of the others are compared by their
        ends, under any dependence.
    """
    models = list(models)
    anew = judged_anew(old, new, models)
    pairs = []
    questions = 0
    for name in models:
        if name in anew:
            continue
        is_independent = name in independent
        pair = _pair(name, old.rows(name), new.rows(name), exactly, is_independent)
        pairs.append(pair)
        questions += len(pair.items)
    goal = math.log(1 / alpha)
    if not questions:
        return Changes(0, goal, None, None, ())

    share = alpha / questions  # a refutation at this level alone makes a mean of 1 / alpha
    rises: list[ChangedQuestion] = []
    falls: list[ChangedQuestion] = []
    for pair in pairs:
        rises += pair.differences(share, worse=True)
        falls += pair.differences(share, worse=False)
    return Changes(
        questions=questions,
        log_goal=goal,
        log_e_worse=log_mean(_log_e(rises)),
        log_e_better=log_mean(_log_e(falls)),
        proved=(*_proved(rises, goal), *_proved(falls, goal)),
    )


def _log_e(differences: Sequence[ChangedQuestion]) -> list[float]:
    return [difference.log_e for difference in differences]


def judged_anew(old: Results, new: Results, models: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The scorers before and after, by model, of the models that another scorer, or one with other parameters, judged in
    the earlier run.

    Their words and numbers are about other events, so no difference between them says that a model changed.
    """
    anew = {}
    for name in models:
        before = old.scorers(name)
        after = new.scorers(name)
        if before and before != after:
            anew[name] = (_scorers(before), _scorers(after))
    return anew


def _scorers(judged_by: Mapping[str, Json]) -> str:
    """Both scorers with their parameters."""
    parameters = judged_by.get("parameters") or {}
    shown = {}
    for scorer in (judged_by.get("score"), judged_by.get("leak")):
        if scorer is None:
            continue
        values = [f"{key} {value}" for key, value in parameters.get(scorer, {}).items()]
        shown[scorer] = f"{scorer} ({', '.join(values)})" if values else scorer
    return " and ".join(shown.values()) or "no scorer"


@dataclass(frozen=True, eq=False)
class _Side:
    """The questions of a model in one run: of each the ``counts`` of independent draws, with the certain ends, and
    ``others``, the ends from all other evidence."""

    counts: Sequence[Counts]
    others: Ends

    @property
    def has_others(self) -> np.ndarray:
        """(m,) whether a question has other evidence."""
        has_ends = np.zeros(len(self.counts), dtype=bool)
        for kind in self.others.evidence:
            has_ends = has_ends | kind.has_ends
        return has_ends


@dataclass(frozen=True, eq=False)
class _ModelInBothRuns:
    """One model in both runs, on the questions that both judged."""

    model: str
    quantity: Measured
    items: Sequence[str]
    before: _Side
    after: _Side

    def differences(self, share: float, worse: bool) -> list[ChangedQuestion]:
        """Of each question, against "it leaks at most as often as before" (``worse``), or "at least".

        Counts have an e-process. Other evidence refutes at a level up to ``share``, or not at all. Two kinds of evidence
        halve the capital.
        """
        rarer, more_often = self.after, self.before
        if worse:
            rarer, more_often = self.before, self.after
        has_counts = _were_drawn(rarer.counts) & _were_drawn(more_often.counts)
        has_others = rarer.has_others & more_often.has_others

        n_kinds = has_counts.astype(int) + has_others
        level = share * SLACK / np.maximum(n_kinds, 1)
        most = rarer.others.upper(level / 2)
        least = more_often.others.lower(level / 2)
        log_e_by_ends = np.where(least > most, np.log(1 / level), -np.inf)
        before, after = least, most
        if worse:
            before, after = most, least

        found = []
        for place, question in enumerate(self.items):
            by_ends = ChangedQuestion(
                model=self.model,
                quantity=self.quantity,
                question=question,
                worse=worse,
                log_e=float(log_e_by_ends[place]),
                before=float(before[place]),
                after=float(after[place]),
                by_ends=True,
            )
            low = rarer.counts[place]
            high = more_often.counts[place]
            if high.lower > low.upper:
                found.append(replace(by_ends, log_e=math.inf))
                continue
            if not has_counts[place]:
                found.append(by_ends)
                continue
            difference = self._by_counts(by_ends, place, log_e_leaks(high, [low], 0.0))
            if has_others[place]:
                difference = _joined(difference, by_ends)
            found.append(difference)
        return found

    def _by_counts(self, difference: ChangedQuestion, place: int, log_e: float) -> ChangedQuestion:
        """The difference as the counts show it."""
        before = self.before.counts[place]
        after = self.after.counts[place]
        return replace(
            difference,
            log_e=log_e,
            before=before.leaks / before.n,
            after=after.leaks / after.n,
            by_ends=False,
        )


def _were_drawn(counts: Sequence[Counts]) -> np.ndarray:
    """(m,) whether answers to a question were drawn."""
    return np.array([drawn.n > 0 for drawn in counts])


def _joined(first: ChangedQuestion, second: ChangedQuestion) -> ChangedQuestion:
    """The mean of two e-values, with the numbers of the larger."""
    larger = first
    if second.log_e > first.log_e:
        larger = second
    log_sum = float(np.logaddexp(first.log_e, second.log_e))
    return replace(larger, log_e=log_sum - LN2)


def _proved(differences: Sequence[ChangedQuestion], goal: float) -> list[ChangedQuestion]:
    """What is proved in one direction: of each model with named questions the one with the most evidence, else the one of all
    models."""
    log_e = _log_e(differences)
    if not is_reached(log_mean(log_e), goal):
        return []

    named_of_model: dict[str, list[ChangedQuestion]] = {}
    for difference, is_named in zip(differences, named(log_e, goal), strict=True):
        if is_named:
            named_of_model.setdefault(difference.model, []).append(difference)
    if not named_of_model:
        return [max(differences, key=_evidence)]
    proved = []
    for found in named_of_model.values():
        strongest = max(found, key=_evidence)
        proved.append(replace(strongest, questions=len(found)))
    return proved


def _evidence(difference: ChangedQuestion) -> float:
    return difference.log_e


def _pair(
    model: str,
    old: Sequence[Result],
    new: Sequence[Result],
    exactly: bool,
    is_independent: bool,
) -> _ModelInBothRuns:
    """A model in both runs: by leaks where both judged some of the same questions, else by scores."""
    before, after = about_the_same(old, new, exactly)
    items = _common(before, after, "leak")
    if not items:
        items = _common(before, after, "score")
        return _ModelInBothRuns(
            model, "score", items, _scores(before, items), _scores(after, items)
        )
    counted: Set[str] = set()
    if is_independent:
        counted = counted_rows(before).keys() & counted_rows(after).keys()
    leaks_before = _leaks(before, items, counted)
    leaks_after = _leaks(after, items, counted)
    return _ModelInBothRuns(model, "leak", items, leaks_before, leaks_after)


def about_the_same(
    old: Sequence[Result], new: Sequence[Result], exactly: bool
) -> tuple[list[Result], list[Result]]:
    """The rows of questions of two runs that are about the same events.

    Exact bounds stay only where they are about the leaks of the sampled answers (``exactly``). A person's labels and a
    scorer judge other events: labels stay where both runs have them for a question, and then nothing else of its leaks.
    """
    before = _about(old, exactly)
    after = _about(new, exactly)
    labelled = _labelled(before) & _labelled(after)
    return _judged_alike(before, labelled), _judged_alike(after, labelled)


def _labelled(rows: Sequence[Result]) -> set[str | None]:
    """The questions whose answers a person labelled."""
    return {row.item for row in rows if (row.quantity, row.basis) == ("leak", "labelled")}


def _judged_alike(rows: Sequence[Result], labelled: Set[str | None]) -> list[Result]:
    """The rows whose leaks a person judged in the questions ``labelled``, and a scorer in the others."""
    kept = []
    for row in rows:
        is_by_person = row.basis == "labelled"
        should_be_by_person = row.item in labelled
        if row.quantity != "leak" or is_by_person == should_be_by_person:
            kept.append(row)
    return kept


def _common(old: Sequence[Result], new: Sequence[Result], quantity: Measured) -> tuple[str, ...]:
    """The questions of which both runs bound the quantity, in the order of the new one."""
    before = set(_questions(old, quantity))
    after = _questions(new, quantity)
    return tuple(item for item in after if item in before)


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
        is_drawn = row.quantity == quantity and row.basis in SAME_DRAWS
        if is_drawn and row.upper is not None:
            items[str(row.item)] = None
    return list(items)


def _leaks(rows: Sequence[Result], items: Sequence[str], counted: Set[str]) -> _Side:
    """The questions of one run in the order of ``items``, those ``counted`` by their counts of draws."""
    others = []
    for row in rows:
        # a question takes the first kind of draws that it has, so no other row may bound the same draws
        if row.basis not in SAME_DRAWS or str(row.item) not in counted:
            others.append(row)
    ends = Ends.of_rows(others, items)
    rows_with_counts = counted_rows(rows)

    counts = []
    for place, item in enumerate(items):
        facts: Mapping[str, Json] = {"leaks": 0, "n": 0}
        if item in counted:
            facts = rows_with_counts[item].facts
        drawn = Counts(
            facts["leaks"],
            facts["n"],
            facts.get("missing") or 0,
            float(ends.certain_lower[place]),
            float(ends.certain_upper[place]),
        )
        counts.append(drawn)
    return _Side(counts, ends)


def _scores(rows: Sequence[Result], items: Sequence[str]) -> _Side:
    """The ends of mean scores by Chernoff's bound, which needs independent values and a fixed number of answers."""
    questions = Results({"": tuple(rows)}).questions("")
    sums = [_sums(questions[item]) for item in items]

    def ends(level: float) -> BothEnds:
        lower = np.zeros(len(sums))
        upper = np.ones(len(sums))
        for place, found in enumerate(sums):
            if found is not None:
                lower[place], upper[place] = found.interval(level)
        return lower, upper

    has_sums = [found is not None for found in sums]
    evidence = AtLevel.of(ends, has_sums)
    no_counts = [Counts(0, 0)] * len(items)
    return _Side(no_counts, Ends.of_arrays(items, others=[evidence]))


@dataclass(frozen=True)
class _Sums:
    """Sums of ``n`` independent values in [0, 1]: with missing values as 0 and as 1."""

    low: float
    high: float
    n: int

    def interval(self, level: float) -> tuple[float, float]:
        """Both ends of the mean: Chernoff's bound, which holds for unequal expectations (Hoeffding, 1963)."""
        budget = -math.log(level) / self.n
        mean_low = self.low / self.n
        mean_high = self.high / self.n
        lower = 1 - kl_upper(1 - mean_low, budget)
        upper = kl_upper(mean_high, budget)
        return float(lower), float(upper)


def _sums(question: Numbers) -> _Sums | None:
    """The sums of a question's scores; None where the number of answers was not fixed."""
    row = question.row("score")
    # n is unknown where a rule could stop the draws
    if row is None or row.estimate is None or not row.n:
        return None
    missing = int(question.estimate("unscored") or 0)
    low = row.estimate * (row.n - missing)
    return _Sums(low, low + missing, row.n)
