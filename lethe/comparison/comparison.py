"""A comparison of two runs: which differences hold over all questions together, with intervals; and the ranks of several."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np

from lethe.comparison.sides import NotCompared, Pair, Side, binary_of, joined, stops
from lethe.errors import BadInput, plural
from lethe.io.files import Json
from lethe.measure.prompts import by_length
from lethe.measure.scores import mean
from lethe.progress import progress
from lethe.results.licence import Source, refusals
from lethe.results.table import Result, Rows, result
from lethe.statistics.betting import mean_upper
from lethe.statistics.bound import Assumes, Bound, Covers, both_ends, level, rounded
from lethe.statistics.bounds import binary_upper
from lethe.statistics.checks import check_alpha
from lethe.statistics.many_prompts import holm, rank_ranges
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
AVERAGES, RANKS = ("difference", "difference_population"), ("rank", "rank_population")
SHOWN = 20  # rows in a table for people
WORSE, BETTER, NEITHER = "worse", "better", "not shown"
On = Literal["questions", "average"]


@dataclass(frozen=True)
class _Rows:
    """What is read from rows, of which the first records the sides, the level, the score and what is not compared."""

    results: tuple[Result, ...]

    def rows(self) -> list[Result]:
        return list(self.results)

    @property
    def record(self) -> dict[str, Json]:
        return dict(self.results[0].facts)


class Comparison(_Rows):
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
        own = (row for row in self.results if (row.scope, row.quantity) == ("model", quantity))
        return next((row for row in own if row.upper is not None), None)

    def with_outcome(self, kind: str) -> list[Result]:
        return [row for row in self.per_question if outcome(row) == kind]

    def ranked(self) -> list[Result]:
        """The questions, those whose difference holds first, in descending order of the difference."""
        return sorted(
            self.per_question, key=lambda row: (not row.facts["holds"], -abs(row.estimate or 0.0))
        )

    @property
    def words(self) -> tuple[str, str]:
        """What B is called where it scores higher, and where it scores lower: nobody knows which is worse of some scores."""
        return ("higher", "lower") if self.record["unpointed"] else (WORSE, BETTER)

    def word(self, outcome: str) -> str:
        """The word for an outcome, neutral where nobody said which end of the score is a leak."""
        above, below = self.words
        return above if outcome == WORSE else below

    def table(self) -> tuple[list[str], list[list[object]]]:
        words = dict(zip((WORSE, BETTER), self.words, strict=True))
        rows = [
            [
                row.item,
                row.facts["a"],
                row.facts["b"],
                *_numbers(row),
                words[outcome(row)] if row.facts["holds"] else "",
            ]
            for row in self.ranked()[:SHOWN]
        ]
        return ["question", "A", "B", "B - A", "at least", "at most", "holds"], rows

    def sentences(self) -> list[str]:
        record, each = self.record, self.per_question
        if record["refused"]:
            lines = [f"A: {record['a']}. B: {record['b']}. Score: {record['metric']}."]
            for reason in record["refused"]:
                lines.append(f"Nothing is claimed of these two sides. {reason}")
            for row in self.results:
                if (row.scope, row.quantity) == ("model", "difference"):
                    means = f"A {rounded(row.facts['a'], 4)}, B {rounded(row.facts['b'], 4)}"
                    lines.append(
                        f"The mean scores as recorded, over {plural(len(each), 'question')}: {means}."
                    )
            return lines
        alpha, questions = record["alpha"], plural(len(each), "question")
        points = "." if record["unpointed"] else "; higher is worse."
        lines = [f"A: {record['a']}. B: {record['b']}. Score: {record['metric']}{points}"]
        lines += [*record["directions"], *record["unpointed"]]
        if each:
            worse, better = (len(self.with_outcome(kind)) for kind in (WORSE, BETTER))
            above, below = self.words
            lines += [
                f"{above.capitalize()} in B: {worse} of {questions}; {below}: {better}. This list has no "
                f"false entry {level(alpha)} (Holm, each direction at half), assuming {_all(row.assumes for row in each)}.",
                f"Each interval of a difference holds {level(alpha)} by itself ({_all(row.method for row in each)}).",
            ]
        else:
            lines.append("No question could be compared.")
        for row in filter(None, map(self.of_all, AVERAGES)):
            low, high = row.ends
            average = rounded(math.nan if row.estimate is None else row.estimate, 4)
            lines.append(
                f"{low.on(f'the {questions}').capitalize()}, B - A is {average}, from "
                f"{low.number(4)} to {high.number(4)} {low.level()} ({low.method}; {low.assumes}): "
                + ("the difference holds." if row.facts["holds"] else "no difference is shown.")
            )
        if (claim := self.of_all("not_worse")) and not record["unpointed"]:
            lines.append(_not_worse(claim))
        return [*lines, *_remarks(record)]


def _all(words: Iterable[str | None]) -> str:
    """The assumptions or methods of all questions; the models of a folder may be drawn in different ways."""
    return "; or ".join(dict.fromkeys(filter(None, words)))


def outcome(row: Result) -> str:
    """``worse`` if B scores higher and the difference holds, ``better`` if B scores lower and the difference holds."""
    return NEITHER if not row.facts["holds"] else WORSE if (row.estimate or 0.0) > 0 else BETTER


def _numbers(row: Result) -> list[object]:
    ends: list[object] = [end.rounded(4) for end in row.ends]
    if not ends:
        ends = ["", ""]
    return [row.estimate, *ends]


def _not_worse(row: Result) -> str:
    facts, bound = row.facts, row.ends[0]
    about = "each compared question" if facts["on"] == "questions" else "average"
    shown, by = bound.rounded(4), facts["by"]
    if facts["holds"]:
        return f"B is proved not worse by more than {by:g} on {about} {bound.level()}: at most {shown}."
    names = ", ".join(facts["unproved"][:3]) + (" and more" if len(facts["unproved"]) > 3 else "")
    first = f" ({names})" if names else ""
    return (
        f"B is not proved to be worse by at most {by:g} on {about}: the largest upper bound is {shown}{first}. "
        "`lethe plan --compare` counts the answers that this takes."
    )


def _remarks(record: Mapping[str, Json]) -> list[str]:
    lines = [f"Note: {note}." for note in record["notes"]]
    reasons: dict[str, list[str]] = {}
    for one in record["not_compared"]:
        reasons.setdefault(one["reason"], []).extend([one["id"]] if one["id"] is not None else [])
    for reason, ids in reasons.items():
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        lines.append(
            f"Not compared: {reason}" + (f" ({', '.join(ids[:3])}{more})." if ids else ".")
        )
    return lines


def _facts(effect: Difference, holds: bool) -> dict[str, object]:
    return {"a": effect.a, "b": effect.b, "p_value": effect.p_value, "holds": holds}


def _add_average(
    rows: Rows,
    quantity: str,
    effect: Difference | None,
    holds: bool,
    covers: Covers,
    against: str | None = None,
) -> None:
    """Add the row of an average; one without numbers where the average is not compared."""
    numbers = (effect.difference, *effect.bounds(covers)) if effect else ()
    facts = _facts(effect, holds) if effect else None
    rows.add("model", quantity, "compared", *numbers, item=against, evidence=facts)


def _record(
    facts: Mapping[str, Json], missing: Sequence[NotCompared], notes: Sequence[str]
) -> dict[str, Json]:
    remarks = {"not_compared": [asdict(one) for one in missing], "notes": list(notes)}
    return {"refused": [], **facts, **remarks, "correction": HOLM}


def compare(
    a: Side,
    b: Side,
    alpha: float = 0.05,
    by: float | None = None,
    on: On = "questions",
    worst: bool = False,
) -> Comparison:
    """Compare two sides question by question and on average.

    ``by`` asks whether B is worse by at most so much, on every question or on average; ``worst`` asks for an upper bound of
    B's largest question. Nothing is compared where nothing may be claimed of a side; the record says why.

    The method follows from recorded facts: the seeds, the engine and the stopping rule (`sides.relation`). A missing score
    widens the interval on both ends. The bounds of a side that a rule could stop early are bounds at the stop.
    """
    check_alpha(alpha)
    if reasons := refused((a, b), "AB"):
        return _means_alone(a, b, alpha, reasons)
    missing: list[NotCompared] = []
    notes = stops((a, b), "AB")
    pairs, rows = joined(a, b, missing, notes), Rows(b.name)
    averages: list[Difference | None] = [None, None]
    both, worse = _Pairs(a, b, pairs) if pairs else None, False
    if both:
        effects, averages = both.effects(alpha), [both.average(alpha), both.population(alpha)]
        # Holm for "worse" and for "better", at half of alpha each
        above = holm([one.p_above() for one in effects], 0.0, alpha / 2)[0]
        below = holm([one.p_below() for one in effects], 0.0, alpha / 2)[0]
        worse = bool(above.any())
        for pair, effect, holds in zip(pairs, effects, (above | below).tolist(), strict=True):
            shown = {"model": pair.model or None, **_facts(effect, holds)}
            numbers = effect.difference, *effect.bounds()
            rows.add("question", "difference", "compared", *numbers, item=pair.id, evidence=shown)
        if averages[0] is None:
            reason = "the average: the questions of a side have different numbers of answers"
            missing.append(NotCompared(None, reason))
        else:
            worse |= averages[0].p_above() <= alpha / 2
    for name, average, covers in zip(
        AVERAGES, averages, (Covers.AVERAGE, Covers.POPULATION), strict=True
    ):
        # Each average is a separate claim at alpha.
        _add_average(rows, name, average, average is not None and average.p_value <= alpha, covers)
    if both and by is not None:
        both.not_worse_row(rows, alpha, by, on)
    if both and worst:
        rows.add("model", "score_worst", "compared", None, None, _worst(b, both.binary, alpha))
    stated = _stated((a, b))
    facts = {"a": a.name, "b": b.name, "alpha": alpha, "metric": a.metric}
    facts["worse"] = None if stated["unpointed"] else worse
    record = _record(facts, missing, notes) | stated
    return Comparison(
        (result(b.name, "model", "comparison", "compared", evidence=record), *rows.rows)
    )


def _means_alone(a: Side, b: Side, alpha: float, reasons: Sequence[str]) -> Comparison:
    """The mean scores of both sides where nothing may be claimed of one: as recorded, without an interval or an outcome."""
    missing: list[NotCompared] = []
    notes = stops((a, b), "AB")
    rows = Rows(b.name)
    means_of_a, means_of_b = [], []
    for pair in joined(a, b, missing, notes):
        of_a, of_b = _plain_mean(pair.first), _plain_mean(pair.second)
        if of_a is None or of_b is None:
            missing.append(NotCompared(pair.id, "a side has no score of it"))
            continue
        means_of_a.append(of_a)
        means_of_b.append(of_b)
        shown = {"model": pair.model or None} | _plain(of_a, of_b)
        rows.add("question", "difference", "compared", of_b - of_a, item=pair.id, evidence=shown)
    if means_of_a:
        of_a, of_b = mean(means_of_a), mean(means_of_b)
        rows.add("model", "difference", "compared", of_b - of_a, evidence=_plain(of_a, of_b))
    facts = {"a": a.name, "b": b.name, "alpha": alpha, "metric": a.metric, "worse": None}
    record = _record(facts | {"refused": reasons}, missing, notes) | _stated((a, b))
    return Comparison(
        (result(b.name, "model", "comparison", "compared", evidence=record), *rows.rows)
    )


def _plain_mean(scores: np.ndarray) -> float | None:
    present = scores[~np.isnan(scores)]
    return float(present.mean()) if len(present) else None


def _mean_of_plain(scores: Sequence[np.ndarray]) -> float | None:
    """The mean over questions of their means, without the questions that have no score."""
    means = []
    for of_question in scores:
        plain = _plain_mean(of_question)
        if plain is not None:
            means.append(plain)
    return mean(means) if means else None


def _plain(of_a: float, of_b: float) -> dict[str, Json]:
    return {"a": of_a, "b": of_b, "p_value": None, "holds": None}


def refused(sides: Sequence[Side], names: Iterable[str]) -> list[str]:
    """Why nothing may be claimed of these sides, each reason with its side; empty where it may."""
    return [
        f"{name}: {reason}"
        for side, name in zip(sides, names, strict=True)
        for reason in side.refused
    ]


def _stated(sides: Sequence[Side]) -> dict[str, Json]:
    """What the sides state of their scores, and why nothing may be said of leaks."""
    source = Source()
    directions: dict[str, None] = {}
    for side in sides:
        source = source.joined(Source(score_means=side.stated.direction))
        directions |= dict.fromkeys(side.stated.sentences())
    facts = {"unpointed": refusals(source), "directions": list(directions)}
    return facts | sides[0].stated.as_json()


class _Pairs:
    """The questions of both sides."""

    def __init__(self, a: Side, b: Side, pairs: Sequence[Pair]):
        self.pairs, self.stopped = pairs, (a.stopped, b.stopped)  # which side a rule could stop
        self.sides = [pair.first for pair in pairs], [pair.second for pair in pairs]
        self.binary = binary_of(a, b, [*self.sides[0], *self.sides[1]])

    def effects(self, alpha: float) -> list[Difference]:
        work = progress(self.pairs, "compare", "questions") if len(self.pairs) > 100 else self.pairs
        return [
            difference(pair.first, pair.second, alpha, self.binary, self.stopped, pair.draws)
            for pair in work
        ]

    def average(self, alpha: float) -> Difference | None:
        relations = {pair.draws for pair in self.pairs}
        draws: Draws = relations.pop() if len(relations) == 1 else "any"
        groups = [pair.model for pair in self.pairs]
        return mean_of_differences(
            *self.sides, alpha, self.binary, draws=draws, groups=groups, stopped=self.stopped
        )

    def population(self, alpha: float) -> Difference | None:
        """None where a rule could stop a side, whose means it biases, and for one question asked of several models."""
        if any(self.stopped) or len({pair.model for pair in self.pairs}) > 1:
            return None
        return population_difference(*self.sides, alpha, self.binary)

    def not_worse_row(self, rows: Rows, alpha: float, by: float, on: On) -> None:
        """Add how much worse B is at most; the ends, each at alpha, are those of intervals at twice alpha.

        Every question at alpha, without a correction: the claim is false only if some question's bound fails, and that of
        the worst question fails with probability at most alpha. ``unproved`` are the questions whose bound exceeds ``by``.
        """
        both, unproved = min(2 * alpha, 0.5), list[str]()
        if on == "average":
            pooled, covers = self.average(both), Covers.AVERAGE
            how = (pooled.assumes, pooled.method) if pooled else ("nothing", "none")
            value = pooled.high if pooled else 1.0
        else:
            effects, covers = self.effects(both), Covers.WORST_PROMPT
            ends = {pair.id: effect.high for pair, effect in zip(self.pairs, effects, strict=True)}
            unproved = sorted(
                (name for name, end in ends.items() if end > by), key=lambda name: -ends[name]
            )
            value = max(ends.values())
            how = _all(one.assumes for one in effects), _all(one.method for one in effects)
        bound = Bound(value, "upper", alpha, covers, *how)
        facts = {"by": by, "on": on, "unproved": unproved, "holds": value <= by}
        rows.add("model", "not_worse", "compared", None, None, bound, evidence=facts)


def _worst(b: Side, binary: bool, alpha: float) -> Bound:
    """An upper bound of B's largest mean, of questions that A lacks too: each at alpha, without a correction."""
    scores = [own.scores for model in b.models.values() for own in model.questions.values()]
    filled = [np.nan_to_num(own, nan=1.0) for own in scores]
    if b.stopped:
        values, method = StoppedSamples(filled).uppers(alpha).tolist(), AT_THE_STOP
    elif binary and all(np.isin(own, (0.0, 1.0)).all() for own in filled):
        values, method = (
            [float(binary_upper(own.sum(), len(own), alpha)) for own in filled],
            "Clopper-Pearson",
        )
    else:
        values, method = by_length(filled, lambda rows: mean_upper(rows, alpha).tolist()), "betting"
    return Bound(max(values), "upper", alpha, Covers.WORST_PROMPT, Assumes.DRAWS_WITHIN, method)


Effects = dict[tuple[int, int], Difference | None]


def _rank_rows(
    runs: Sequence[Rows],
    quantities: Sequence[str],
    covers: Covers,
    effects: Effects,
    alpha: float,
    ranked: bool,
) -> list[Result]:
    """Add the ranks that each run may have, and return the differences of the pairs: all hold together (Holm).

    ``effects`` are by the places of two runs; ``ranked``: whether the tests are tests of means.
    """
    p_values, off = np.ones((len(runs), len(runs))), ~np.eye(len(runs), dtype=bool)
    for (i, j), effect in effects.items():
        if effect is not None:
            p_values[j, i], p_values[i, j] = effect.p_above(), effect.p_below()
    higher = np.zeros(
        p_values.shape, dtype=bool
    )  # [i, j]: run i is proved to score higher than run j
    higher[off] = holm(p_values[off], 0.0, alpha)[0]
    first, differences = next(iter(effects.values())), []
    proved = ranked and first is not None and None not in effects.values()
    for own, ranks in zip(runs, rank_ranges(higher), strict=True):
        method = (alpha, covers, first.assumes if first else "", "Holm, both directions")
        own.add(
            "model",
            quantities[0],
            "compared",
            None,
            *(both_ends(*ranks, *method) if proved else ()),
        )
    for (i, j), effect in effects.items():
        pair = Rows(runs[j].model)
        _add_average(
            pair, quantities[1], effect, bool(higher[i, j] or higher[j, i]), covers, runs[i].model
        )
        differences += pair.rows
    return differences


class Ranking(_Rows):
    """The result of `rank`; a difference is of the later run against the run in ``item``."""

    def of(self, quantity: str) -> list[Result]:
        """The rows of a quantity: of each run, or of each pair."""
        return [row for row in self.results if row.quantity == quantity]

    def differ(self, quantity: str) -> int:
        """The number of pairs that differ."""
        return sum(row.facts.get("holds", False) for row in self.of(quantity))

    def ranges(self, quantity: str) -> list[tuple[int, int]] | None:
        """The lowest and the highest rank of each run; None where ranks are not proved."""
        ends = [(row.lower, row.upper) for row in self.of(quantity)]
        return None if None in ends[0] else [(int(low or 0), int(high or 0)) for low, high in ends]

    def order(self) -> list[int]:
        """The runs by their means, the lowest first."""
        means = [row.estimate or 0.0 for row in self.of("score")]
        return sorted(range(len(means)), key=lambda place: means[place])

    def table(self) -> tuple[list[str], list[list[object]]]:
        both, runs = [self.ranges(quantity) for quantity in RANKS], self.of("score")
        shown = [
            [" to ".join(map(str, dict.fromkeys(one))) for one in each] if each else None
            for each in both
        ]
        rows: list[list[object]] = [
            [
                runs[place].model,
                runs[place].estimate,
                *(ranges and ranges[place] for ranges in shown),
            ]
            for place in self.order()
        ]
        return ["run", "mean", "rank, these questions", "rank, questions like these"], rows

    def pair_table(self) -> tuple[list[str], list[list[object]]]:
        rows = [
            [row.item, row.model, about, *_numbers(row), "differ" if row.facts["holds"] else ""]
            for quantity, about in zip(
                AVERAGES, ("these questions", "questions like these"), strict=True
            )
            for row in self.of(quantity)
            if row.upper is not None
        ]
        return ["A", "B", "over", "B - A", "at least", "at most", "holds"], rows

    def sentences(self) -> list[str]:
        record = self.record
        size = f"the {plural(record['questions'], 'question')}"
        if record["refused"]:
            lines = [f"Score: {record['metric']}. The means are as recorded, over {size}."]
            for reason in record["refused"]:
                lines.append(f"No rank is claimed of these runs. {reason}")
            return [*lines, *_remarks(record)]
        points = "" if record["unpointed"] else "; higher is worse"
        lines = [f"Score: {record['metric']}{points}. Rank 1 has the lowest mean over {size}."]
        lines += [*record["directions"], *record["unpointed"]]
        for quantity, ranks in zip(AVERAGES, RANKS, strict=True):
            pairs = self.of(quantity)
            for bound in [row.lower_bound for row in pairs if row.lower_bound][:1]:
                also = " and the ranges of ranks" if self.ranges(ranks) else ""
                lines.append(
                    f"{bound.on(size).capitalize()}, {self.differ(quantity)} of {plural(len(pairs), 'pair')} differ. "
                    f"These pairs{also} hold together {level(record['alpha'])} (Holm, both directions), assuming "
                    f"{bound.assumes}."
                )
        if not self.ranges(RANKS[0]):
            lines.append(
                "Ranks over these questions need equally many answers to each, at least two."
            )
        return [*lines, *_remarks(record)]


def rank(sides: Sequence[Side], alpha: float = 0.05) -> Ranking:
    """The ranks that each run may have by its mean over the questions that all runs have.

    Where nothing may be claimed of a run, the means stand alone, as recorded, without ranks and without pairs that differ.
    """
    check_alpha(alpha)
    refutations = refused(sides, (side.name for side in sides))
    names, missing, notes = (
        [side.name for side in sides],
        [],
        stops(sides, (side.name for side in sides)),
    )
    by_pair: dict[tuple[int, int], dict[str, Pair]] = {}
    for (i, a), (j, b) in combinations(enumerate(sides), 2):
        of_pair: list[NotCompared] = []
        settings: list[str] = []
        by_pair[i, j] = {pair.id: pair for pair in joined(a, b, of_pair, settings)}
        about = f"{a.name} (A) and {b.name} (B): "
        notes += [about + note for note in settings if i == 0]
        missing += [
            replace(one, reason=about + one.reason) for one in of_pair if i == 0 or one.id is None
        ]
    common = [name for name in by_pair[0, 1] if all(name in own for own in by_pair.values())]
    if not common:
        reasons = "; ".join(dict.fromkeys(one.reason for one in missing))
        raise BadInput(f"{', '.join(names)}: no question is common to all runs ({reasons}).")
    pairs = {
        (i, j): _Pairs(sides[i], sides[j], [own[name] for name in common])
        for (i, j), own in by_pair.items()
    }
    pooled: Effects = dict.fromkeys(pairs)
    population: Effects = dict.fromkeys(pairs)
    if not refutations:
        pooled = {places: both.average(alpha) for places, both in pairs.items()}
        population = {places: both.population(alpha) for places, both in pairs.items()}
    # With one answer of 0 or 1 to each question the tests are sign tests, not tests of means.
    several = any(len(own) > 1 for own in pairs[0, 1].sides[0])
    runs = [Rows(name) for name in names]
    for place, own in enumerate(runs):
        scores = pairs[0, place or 1].sides[bool(place)]
        average = _mean_of_plain(scores) if refutations else mean(map(mean, scores))
        own.add("model", "score", "compared", average)
    differences = _rank_rows(runs, (RANKS[0], AVERAGES[0]), Covers.AVERAGE, pooled, alpha, several)
    differences += _rank_rows(
        runs, (RANKS[1], AVERAGES[1]), Covers.POPULATION, population, alpha, True
    )
    facts = {"alpha": alpha, "metric": sides[0].metric, "questions": len(common)}
    facts |= {"refused": refutations}
    record = _record(facts, missing, notes) | {"runs": names} | _stated(sides)
    whole = result(", ".join(names), "model", "comparison", "compared", evidence=record)
    return Ranking((whole, *(row for own in runs for row in own.rows), *differences))
