"""A comparison of two runs: which differences hold over all questions together, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import numpy as np

from lethe.comparison.sides import (
    NotCompared,
    Pair,
    Side,
    binary_of,
    joined,
    may_share,
    models_of,
    stops,
)
from lethe.errors import plural
from lethe.io.files import Json
from lethe.measure.by_length import by_length
from lethe.measure.scores import mean
from lethe.progress import progress
from lethe.results.gate import GatedQuestion
from lethe.results.licence import Source, refusals
from lethe.results.table import Result, Rows, result
from lethe.statistics.betting import mean_upper
from lethe.statistics.bound import Assumes, Bound, Covers, level, rounded
from lethe.statistics.bounds import binary_upper
from lethe.statistics.checks import check_alpha
from lethe.statistics.many_prompts import holm
from lethe.statistics.mean_difference import (
    Difference,
    Draws,
    difference,
    mean_of_differences,
    population_difference,
)
from lethe.statistics.sequential import METHOD as AT_THE_STOP
from lethe.statistics.sequential import StoppedSamples

HOLM = "holm"
# Over these questions, and over questions like these.
AVERAGES = ("difference", "difference_population")
SHOWN = 20  # rows in a table for people
NAMED = 3  # questions in a sentence
MANY = 100  # questions; with more, the work takes seconds
WORSE = "worse"
BETTER = "better"
NEITHER = "not shown"
On = Literal["questions", "average"]


@dataclass(frozen=True)
class RecordedRows:
    """What is read from rows, of which the first records the sides, the level, the score and what is not compared."""

    results: tuple[Result, ...]

    def rows(self) -> list[Result]:
        return list(self.results)

    @property
    def record(self) -> dict[str, Json]:
        return dict(self.results[0].facts)


class Comparison(RecordedRows):
    """The result of `compare`; the rows of a question are of B's model, if the sides name one."""

    @property
    def worse(self) -> bool:
        """Whether B is worse on some question or on average (half of alpha each); wrong with probability at most alpha."""
        return bool(self.record["worse"])

    @property
    def per_question(self) -> list[Result]:
        return [row for row in self.results if row.scope == "question"]

    def of_all(self, quantity: str) -> Result | None:
        """The row of a quantity of all questions, if it has numbers."""
        for row in self.results:
            if (row.scope, row.quantity) == ("model", quantity) and row.upper is not None:
                return row
        return None

    def with_outcome(self, kind: str) -> list[Result]:
        return [row for row in self.per_question if outcome(row) == kind]

    def ranked(self) -> list[Result]:
        """The questions, those whose difference holds first, in descending order of the difference."""

        def rank(row: Result) -> tuple[bool, float]:
            return not row.facts["holds"], -abs(row.estimate or 0.0)

        return sorted(self.per_question, key=rank)

    @property
    def words(self) -> tuple[str, str]:
        """What B is called where it scores higher, and where it scores lower: nobody knows which is worse of some scores."""
        if self.record["unpointed"]:
            return "higher", "lower"
        return WORSE, BETTER

    def word(self, outcome: str) -> str:
        """The word for an outcome, neutral where nobody said which end of the score is a leak."""
        above, below = self.words
        return above if outcome == WORSE else below

    def table(self) -> tuple[list[str], list[list[object]]]:
        """The headings and the rows of a table for people, of at most `SHOWN` questions."""
        rows: list[list[object]] = []
        for row in self.ranked()[:SHOWN]:
            facts = row.facts
            word = ""
            if facts["holds"]:
                word = self.word(outcome(row))
            rows.append([row.item, facts["a"], facts["b"], *difference_cells(row), word])
        return ["question", "A", "B", "B - A", "at least", "at most", "holds"], rows

    def sentences(self) -> list[str]:
        """What the comparison claims, or why it claims nothing, for people."""
        record = self.record
        sides = f"A: {record['a']}. B: {record['b']}. Score: {record['metric']}"
        if record["refused"]:
            return [f"{sides}.", *self._sentences_of_refusal()]
        points = "." if record["unpointed"] else "; higher is worse."
        lines = [sides + points, *record["directions"], *record["unpointed"]]
        lines += self._sentences_of_questions()
        for quantity in AVERAGES:
            row = self.of_all(quantity)
            if row:
                lines.append(self._sentence_of_average(row))
        claim = self.of_all("not_worse")
        if claim and not record["unpointed"]:
            lines.append(_not_worse(claim))
        return lines + cost_of_dependence(record) + remarks(record)

    def _sentences_of_refusal(self) -> list[str]:
        """Why nothing is claimed, and the plain means."""
        lines = []
        for reason in self.record["refused"]:
            lines.append(f"Nothing is claimed of these two sides. {reason}")
        questions = plural(len(self.per_question), "question")
        for row in self.results:
            if (row.scope, row.quantity) == ("model", "difference"):
                means = f"A {rounded(row.facts['a'], 4)}, B {rounded(row.facts['b'], 4)}"
                lines.append(f"The mean scores as recorded, over {questions}: {means}.")
        return lines

    def _sentences_of_questions(self) -> list[str]:
        """On how many questions B is worse or better, and what the list and its intervals assume."""
        compared = self.per_question
        if not compared:
            return ["No question could be compared."]
        above, below = self.words
        worse = len(self.with_outcome(WORSE))
        better = len(self.with_outcome(BETTER))
        at_level = level(self.record["alpha"])
        assumed = joined_words([row.assumes for row in compared])
        methods = joined_words([row.method for row in compared])
        return [
            f"{above.capitalize()} in B: {worse} of {plural(len(compared), 'question')}; {below}: {better}. This list has no "
            f"false entry {at_level} (Holm, each direction at half), assuming {assumed}.",
            f"Each interval of a difference holds {at_level} by itself ({methods}).",
        ]

    def _sentence_of_average(self, row: Result) -> str:
        """What holds of the mean difference over all questions."""
        questions = plural(len(self.per_question), "question")
        low, high = row.ends
        estimate = row.estimate
        if estimate is None:
            estimate = math.nan
        average = rounded(estimate, 4)
        shown = "no difference is shown."
        if row.facts["holds"]:
            shown = "the difference holds."
        return (
            f"{low.on(f'the {questions}').capitalize()}, B - A is {average}, from "
            f"{low.number(4)} to {high.number(4)} {low.level()} ({low.method}; {low.assumes}): {shown}"
        )


def joined_words(words: Iterable[str | None]) -> str:
    """The assumptions or methods of all questions; the models of a folder may be drawn in different ways."""
    different = dict.fromkeys(filter(None, words))
    return "; or ".join(different)


def outcome(row: Result) -> str:
    """``worse`` if B scores higher and the difference holds, ``better`` if B scores lower and the difference holds."""
    if not row.facts["holds"]:
        return NEITHER
    if (row.estimate or 0.0) > 0:
        return WORSE
    return BETTER


def difference_cells(row: Result) -> list[object]:
    """A difference and its ends, rounded outward, as the cells of a table; empty where it has no ends."""
    if not row.ends:
        return [row.estimate, "", ""]
    lower, upper = row.ends
    return [row.estimate, lower.rounded(4), upper.rounded(4)]


def _not_worse(row: Result) -> str:
    """Whether B is proved not worse by more than was asked."""
    facts = row.facts
    bound = row.ends[0]
    about = "average"
    if facts["on"] == "questions":
        about = "each compared question"
    shown = bound.rounded(4)
    by = facts["by"]
    if facts["holds"]:
        return f"B is proved not worse by more than {by:g} on {about} {bound.level()}: at most {shown}."
    unproved = facts["unproved"]
    names = ", ".join(unproved[:NAMED])
    if len(unproved) > NAMED:
        names += " and more"
    if names:
        names = f" ({names})"
    return (
        f"B is not proved to be worse by at most {by:g} on {about}: the largest upper bound is {shown}{names}. "
        "`lethe plan --compare` counts the answers that this takes."
    )


def cost_of_dependence(record: Mapping[str, Json]) -> list[str]:
    """A sentence on what it costs to allow any dependence between two sides; none where that costs nothing."""
    dependence = record.get("dependence")
    if not dependence:
        return []
    ratio = f"{dependence['ratio']:.2f}"
    if dependence["shared"]:
        why = "The sides record one seed, so their answers may share random numbers"
        remedy = "Another seed for one side avoids this."
    else:
        why = "No record says that the sides are independent"
        remedy = "If they share no random numbers, declare it (--independent)."
    return [
        f"{why}, and the bounds allow any dependence: that makes an interval {ratio} times as wide as for independent sides. "
        f"{remedy}"
    ]


def remarks(record: Mapping[str, Json]) -> list[str]:
    """A sentence for each note, and for each reason why something is not compared."""
    lines = [f"Note: {note}." for note in record["notes"]]
    ids_of_reason: dict[str, list[str]] = {}
    for entry in record["not_compared"]:
        ids = ids_of_reason.setdefault(entry["reason"], [])
        if entry["id"] is not None:
            ids.append(entry["id"])
    for reason, ids in ids_of_reason.items():
        line = f"Not compared: {reason}"
        if ids:
            named = ", ".join(ids[:NAMED])
            if len(ids) > NAMED:
                named += f" and {len(ids) - NAMED} more"
            line += f" ({named})"
        lines.append(f"{line}.")
    return lines


def _facts(effect: Difference, holds: bool) -> dict[str, object]:
    """What the row of a difference records: the means of both sides, the p-value, and whether the difference holds."""
    return {
        "a": effect.a,
        "b": effect.b,
        "p_value": effect.p_value,
        "holds": holds,
    }


def add_average(
    rows: Rows,
    quantity: str,
    effect: Difference | None,
    holds: bool,
    covers: Covers,
    against: str | None = None,
) -> None:
    """Add the row of an average; one without numbers where the average is not compared."""
    if effect is None:
        rows.add("model", quantity, "compared", item=against)
        return
    lower, upper = effect.bounds(covers)
    add = partial(rows.add, "model", quantity, "compared", item=against)
    add(effect.difference, lower, upper, evidence=_facts(effect, holds))


def record_of(
    facts: Mapping[str, Json], missing: Sequence[NotCompared], notes: Sequence[str]
) -> dict[str, Json]:
    """The record of a comparison or a ranking: the facts of its own, and what was left out or is to be known."""
    return {
        "refused": [],
        "dependence": None,
        **facts,
        "not_compared": [asdict(entry) for entry in missing],
        "notes": list(notes),
        "correction": HOLM,
    }


def compare(
    a: Side,
    b: Side,
    alpha: float = 0.05,
    by: float | None = None,
    on: On = "questions",
    worst: bool = False,
    independent: bool = False,
) -> Comparison:
    """Compare two sides question by question and on average.

    Nothing is compared where nothing may be claimed of a side; the record says why. The method follows from recorded facts:
    the seeds, the engine and the stopping rule (`sides.relation`). A missing score widens the interval on both ends. The
    bounds of a side that a rule could stop early are bounds at the stop.

    Parameters
    ----------
    a, b
        The two sides; a positive difference says that B scores higher.
    alpha
        The level of the list of questions (Holm, half for each direction), of each average, and of ``by`` and ``worst``.
    by
        Asks whether B is worse by at most so much.
    on
        Whether ``by`` is about every question or about the average.
    worst
        Asks for an upper bound of B's largest question.
    independent
        Declares that the sides share no random numbers.

    Raises
    ------
    BadValue
        If alpha is out of range.
    BadInput
        If the sides have no model in common, or ids that are alike but not equal.
    """
    check_alpha(alpha)
    reasons = refused((a, b), "AB")
    if reasons:
        return _means_alone(a, b, alpha, reasons)
    missing: list[NotCompared] = []
    notes = stops((a, b), "AB")
    pairs = joined(a, b, missing, notes, independent)

    rows = Rows(b.name)
    average: Difference | None = None
    dependence: Dependence | None = None
    population: Difference | None = None
    worse = False
    if pairs:
        compared = Pairs(a, b, pairs)
        worse = _add_questions(rows, compared, alpha)
        average = compared.average(alpha)
        population = compared.population(alpha)
        dependence = compared.dependence(alpha, average)
        if average is None:
            reason = "the average: the questions of a side have different numbers of answers"
            missing.append(NotCompared(None, reason))
        elif average.p_above() <= alpha / 2:
            worse = True
    # Each average is a separate claim at alpha.
    _add_claim(rows, AVERAGES[0], average, alpha, Covers.AVERAGE)
    _add_claim(rows, AVERAGES[1], population, alpha, Covers.POPULATION)
    if pairs and by is not None:
        compared.not_worse_row(rows, alpha, by, on)
    if pairs and worst:
        bound, questions = _worst(b, compared.binary, alpha)
        evidence: dict[str, Json] = {"questions": [asdict(question) for question in questions]}
        rows.add("model", "score_worst", "compared", upper=bound, evidence=evidence)

    stated = stated_of((a, b))
    is_worse = None if stated["unpointed"] else worse
    facts = _facts_of_sides(a, b, alpha) | {"worse": is_worse}
    facts["dependence"] = dependence and asdict(dependence)
    return _comparison(rows, record_of(facts, missing, notes) | stated)


def _add_claim(
    rows: Rows,
    quantity: str,
    effect: Difference | None,
    alpha: float,
    covers: Covers,
) -> None:
    """Add the row of an average that is a claim at alpha by itself."""
    holds = effect is not None and effect.p_value <= alpha
    add_average(rows, quantity, effect, holds, covers)


def _facts_of_sides(a: Side, b: Side, alpha: float) -> dict[str, Json]:
    """What the record of a comparison says of its sides."""
    return {"a": a.name, "b": b.name, "alpha": alpha, "metric": a.metric}


def _comparison(rows: Rows, record: Mapping[str, Json]) -> Comparison:
    """The comparison with its record as the first row."""
    whole = result(rows.model, "model", "comparison", "compared", evidence=record)
    return Comparison((whole, *rows.rows))


def _add_questions(rows: Rows, compared: Pairs, alpha: float) -> bool:
    """Add the difference of each question; return whether B is worse on some question.

    Holm's rule for "worse" and for "better", at half of alpha each.
    """
    effects = compared.effects(alpha)
    p_above = [effect.p_above() for effect in effects]
    p_below = [effect.p_below() for effect in effects]
    above, _ = holm(p_above, 0.0, alpha / 2)
    below, _ = holm(p_below, 0.0, alpha / 2)
    differ = (above | below).tolist()
    for pair, effect, holds in zip(compared.pairs, effects, differ, strict=True):
        lower, upper = effect.bounds()
        evidence = {"model": pair.model or None, **_facts(effect, holds)}
        add = partial(rows.add, "question", "difference", "compared", item=pair.id)
        add(effect.difference, lower, upper, evidence=evidence)
    return bool(above.any())


def _means_alone(a: Side, b: Side, alpha: float, reasons: Sequence[str]) -> Comparison:
    """The mean scores of both sides where nothing may be claimed of one: as recorded, without an interval or an outcome."""
    missing: list[NotCompared] = []
    notes = stops((a, b), "AB")
    rows = Rows(b.name)
    means_of_a: list[float] = []
    means_of_b: list[float] = []
    for pair in joined(a, b, missing, notes):
        of_a = _plain_mean(pair.first)
        of_b = _plain_mean(pair.second)
        if of_a is None or of_b is None:
            missing.append(NotCompared(pair.id, "a side has no score of it"))
            continue
        means_of_a.append(of_a)
        means_of_b.append(of_b)
        evidence = {"model": pair.model or None, **_plain(of_a, of_b)}
        add = partial(rows.add, "question", "difference", "compared", item=pair.id)
        add(of_b - of_a, evidence=evidence)
    if means_of_a:
        of_a = mean(means_of_a)
        of_b = mean(means_of_b)
        rows.add("model", "difference", "compared", of_b - of_a, evidence=_plain(of_a, of_b))
    facts = _facts_of_sides(a, b, alpha) | {"worse": None, "refused": reasons}
    return _comparison(rows, record_of(facts, missing, notes) | stated_of((a, b)))


def _plain_mean(scores: np.ndarray) -> float | None:
    """The mean of the scores that are not missing; None where all are."""
    present = scores[~np.isnan(scores)]
    if not len(present):
        return None
    return float(present.mean())


def _plain(of_a: float, of_b: float) -> dict[str, Json]:
    """What the row of a difference records where nothing is claimed of it."""
    return {
        "a": of_a,
        "b": of_b,
        "p_value": None,
        "holds": None,
    }


def refused(sides: Sequence[Side], names: Iterable[str]) -> list[str]:
    """Why nothing may be claimed of these sides, each reason with its side; empty where it may."""
    reasons = []
    for side, name in zip(sides, names, strict=True):
        reasons += [f"{name}: {reason}" for reason in side.refused]
    return reasons


def stated_of(sides: Sequence[Side]) -> dict[str, Json]:
    """What the sides state of their scores, and why nothing may be said of leaks."""
    source = Source()
    directions: dict[str, None] = {}
    for side in sides:
        source = source.joined(Source(score_means=side.stated.direction))
        directions |= dict.fromkeys(side.stated.sentences())
    facts = {"unpointed": refusals(source), "directions": list(directions)}
    return facts | sides[0].stated.as_json()


@dataclass(frozen=True)
class Dependence:
    """What it costs to allow any dependence: ``ratio`` is the width of an interval over that for independent sides.

    ``shared``: the sides record one seed and one stream, so nobody can declare them independent.
    """

    ratio: float
    shared: bool


class Pairs:
    """The questions of both sides."""

    def __init__(self, a: Side, b: Side, pairs: Sequence[Pair]):
        self.a = a
        self.b = b
        self.pairs = pairs
        self.stopped = (a.stopped, b.stopped)  # which side a rule could stop
        self.first = [pair.first for pair in pairs]
        self.second = [pair.second for pair in pairs]
        self.binary = binary_of(a, b, [*self.first, *self.second])

    def effects(self, alpha: float) -> list[Difference]:
        """The difference of each question."""
        work: Iterable[Pair] = self.pairs
        if len(self.pairs) > MANY:
            work = progress(self.pairs, "compare", "questions")
        effects = []
        for pair in work:
            effect = difference(
                pair.first,
                pair.second,
                alpha,
                self.binary,
                self.stopped,
                pair.draws,
            )
            effects.append(effect)
        return effects

    def average(self, alpha: float) -> Difference | None:
        """The mean difference over these questions; None where the questions of a side differ in their answers."""
        draws = self.pairs[0].draws
        for pair in self.pairs:
            if pair.draws != draws:
                draws = "any"
        return self._average(alpha, draws)

    def _average(self, alpha: float, draws: Draws) -> Difference | None:
        """The mean difference of sides whose answers depend on each other as ``draws`` says."""
        return mean_of_differences(
            self.first,
            self.second,
            alpha,
            self.binary,
            draws=draws,
            groups=[pair.model for pair in self.pairs],
            stopped=self.stopped,
        )

    def dependence(self, alpha: float, average: Difference | None) -> Dependence | None:
        """What it costs that the sides may depend on each other; None where it costs nothing, or where independent sides
        would not help: the bounds of a side that a rule could stop hold under any dependence.

        The interval is that of the ``average`` at ``alpha``; where there is none, that of the first question.
        """
        relations = {pair.draws for pair in self.pairs}
        if any(self.stopped) or relations != {"any"}:
            return None
        dependent = average
        independent = None
        if average is not None:
            independent = self._average(alpha, "apart")
        if dependent is None or independent is None:
            of_question = partial(difference, self.first[0], self.second[0], alpha, self.binary)
            dependent = of_question()
            independent = of_question(draws="apart")
        width = dependent.high - dependent.low
        narrower = independent.high - independent.low
        if not 0 < narrower < width:
            return None
        shared = any(may_share(first, second) for first, second in models_of(self.a, self.b))
        return Dependence(width / narrower, shared)

    def population(self, alpha: float) -> Difference | None:
        """The mean difference over questions like these.

        None where a rule could stop a side, whose means it biases, and for one question asked of several models.
        """
        models = {pair.model for pair in self.pairs}
        if any(self.stopped) or len(models) > 1:
            return None
        return population_difference(self.first, self.second, alpha, self.binary)

    def not_worse_row(self, rows: Rows, alpha: float, by: float, on: On) -> None:
        """Add how much worse B is at most; the ends, each at alpha, are those of intervals at twice alpha.

        Every question at alpha, without a correction: the claim is false only if some question's bound fails, and that of
        the worst question fails with probability at most alpha. ``unproved`` are the questions whose bound exceeds ``by``.
        """
        both_ends_at = min(2 * alpha, 0.5)
        unproved: list[str] = []
        if on == "average":
            bound = self._most_on_average(both_ends_at, alpha)
        else:
            bound, unproved = self._most_on_questions(both_ends_at, alpha, by)
        facts = {
            "by": by,
            "on": on,
            "unproved": unproved,
            "holds": bound.value <= by,
        }
        rows.add("model", "not_worse", "compared", upper=bound, evidence=facts)

    def _most_on_average(self, both_ends_at: float, alpha: float) -> Bound:
        """How much worse B is at most on average; 1, which assumes nothing, where there is no average."""
        pooled = self.average(both_ends_at)
        if pooled is None:
            return Bound(
                1.0,
                "upper",
                alpha,
                Covers.AVERAGE,
                "nothing",
                "none",
            )
        return Bound(
            pooled.high,
            "upper",
            alpha,
            Covers.AVERAGE,
            pooled.assumes,
            pooled.method,
        )

    def _most_on_questions(
        self, both_ends_at: float, alpha: float, by: float
    ) -> tuple[Bound, list[str]]:
        """The bound of the worst question, and the questions whose bound exceeds ``by``, the largest first."""
        effects = self.effects(both_ends_at)
        upper_of_question = {}
        for pair, effect in zip(self.pairs, effects, strict=True):
            upper_of_question[pair.id] = effect.high
        unproved = [name for name, upper in upper_of_question.items() if upper > by]
        unproved.sort(key=lambda name: -upper_of_question[name])
        assumes = joined_words([effect.assumes for effect in effects])
        method = joined_words([effect.method for effect in effects])
        most = max(upper_of_question.values())
        return Bound(
            most,
            "upper",
            alpha,
            Covers.WORST_PROMPT,
            assumes,
            method,
        ), unproved


def _worst(b: Side, binary: bool, alpha: float) -> tuple[Bound, list[GatedQuestion]]:
    """An upper bound of B's largest mean, of questions that A lacks too, and both ends of each: at alpha, without a
    correction. A missing score counts as 1 above and as 0 below.
    """
    names = []
    scores = []
    for model_name, model in b.models.items():
        for item, answers in model.questions.items():
            names.append(item if len(b.models) == 1 else f"{model_name}: {item}")
            scores.append(answers.scores)
    most = [np.nan_to_num(values, nan=1.0) for values in scores]
    least = [np.nan_to_num(values, nan=0.0) for values in scores]
    uppers, method = _uppers(most, b.stopped, binary, alpha)
    others, _ = _uppers([1 - values for values in least], b.stopped, binary, alpha)
    questions = []
    for name, upper, other in zip(names, uppers, others, strict=True):
        questions.append(GatedQuestion(name, 1 - other, upper))
    bound = Bound(
        max(uppers),
        "upper",
        alpha,
        Covers.WORST_PROMPT,
        Assumes.DRAWS_WITHIN,
        method,
    )
    return bound, questions


def _uppers(
    filled: Sequence[np.ndarray], stopped: bool, binary: bool, alpha: float
) -> tuple[list[float], str]:
    """The upper end of each mean of scores without missing ones, and its method."""
    if stopped:
        return StoppedSamples(filled).uppers(alpha).tolist(), AT_THE_STOP
    if binary and np.isin(np.concatenate(filled), (0.0, 1.0)).all():
        ends = []
        for scores in filled:
            ends.append(float(binary_upper(scores.sum(), len(scores), alpha)))
        return ends, "Clopper-Pearson"
    return by_length(filled, lambda rows: mean_upper(rows, alpha).tolist()), "betting"
