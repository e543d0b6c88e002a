"""The ranks of several runs: which pairs differ over all questions together, and which ranks each run may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from lethe.comparison.comparison import (
    AVERAGES,
    Pairs,
    RecordedRows,
    add_average,
    cost_of_dependence,
    difference_cells,
    record_of,
    refused,
    remarks,
    stated_of,
)
from lethe.comparison.sides import NotCompared, Pair, Side, joined, stops
from lethe.errors import BadInput, plural
from lethe.measure.scores import mean
from lethe.results.table import Result, Rows, result
from lethe.statistics.bound import Covers, both_ends, level
from lethe.statistics.checks import check_alpha
from lethe.statistics.many_prompts import holm, rank_ranges
from lethe.statistics.mean_difference import Difference

# Over these questions, and over questions like these.
RANKS = ("rank", "rank_population")
ABOUT = ("these questions", "questions like these")
WHOLE = "ranking"  # the name of the record, which belongs to no single run
# The record of what was compared, means and ranks of the models, and the differences of pairs.
QUANTITIES = (
    "comparison",
    "score",
    "rank",
    "rank_population",
    "difference",
    "difference_population",
)


class Ranking(RecordedRows):
    """The result of `rank`; a difference is of the later run against the run in ``item``."""

    @classmethod
    def among(cls, rows: Iterable[Result]) -> Ranking | None:
        """The ranking among the rows of the stage `compare`, its record first; None where no models were ranked."""
        kept = []
        for row in rows:
            if row.basis == "compared" and row.quantity in QUANTITIES:
                kept.append(row)
        return cls(tuple(kept)) if kept else None

    def of(self, quantity: str) -> list[Result]:
        """The rows of a quantity: of each run, or of each pair."""
        return [row for row in self.results if row.quantity == quantity]

    def differ(self, quantity: str) -> int:
        """The number of pairs that differ."""
        differing = [row for row in self.of(quantity) if row.facts.get("holds")]
        return len(differing)

    def ranges(self, quantity: str) -> list[tuple[int, int]] | None:
        """The lowest and the highest rank of each run; None where ranks are not proved."""
        ranges = []
        for row in self.of(quantity):
            if row.lower is None or row.upper is None:
                return None
            ranges.append((int(row.lower), int(row.upper)))
        return ranges

    def order(self) -> list[int]:
        """The places of the runs by their means, the lowest first."""
        means = [row.estimate or 0.0 for row in self.of("score")]
        return sorted(range(len(means)), key=means.__getitem__)

    def table(self) -> tuple[list[str], list[list[object]]]:
        """The headings and the rows of a table for people: a row for each run, the lowest mean first."""
        runs = self.of("score")
        ranges_of_quantity = [self.ranges(quantity) for quantity in RANKS]
        rows: list[list[object]] = []
        for place in self.order():
            run = runs[place]
            row: list[object] = [run.model, run.estimate]
            for ranges in ranges_of_quantity:
                row.append(None if ranges is None else _range(*ranges[place]))
            rows.append(row)
        headings = [f"rank, {questions}" for questions in ABOUT]
        return ["run", "mean", *headings], rows

    def pair_table(self) -> tuple[list[str], list[list[object]]]:
        """The headings and the rows of a table for people: a row for each pair with an interval."""
        rows: list[list[object]] = []
        for quantity, questions in zip(AVERAGES, ABOUT, strict=True):
            for row in self.of(quantity):
                if row.upper is None:
                    continue
                word = ""
                if row.facts["holds"]:
                    word = "differ"
                rows.append([row.item, row.model, questions, *difference_cells(row), word])
        return ["A", "B", "over", "B - A", "at least", "at most", "holds"], rows

    def sentences(self) -> list[str]:
        """What the ranking claims, or why it claims nothing, for people."""
        record = self.record
        metric = record["metric"]
        size = f"the {plural(record['questions'], 'question')}"
        if record["refused"]:
            lines = [f"Score: {metric}. The means are as recorded, over {size}."]
            for reason in record["refused"]:
                lines.append(f"No rank is claimed of these runs. {reason}")
            return lines + remarks(record)
        points = "; higher is worse"
        if record["unpointed"]:
            points = ""
        lines = [f"Score: {metric}{points}. Rank 1 has the lowest mean over {size}."]
        lines += [*record["directions"], *record["unpointed"]]
        for quantity, ranks in zip(AVERAGES, RANKS, strict=True):
            lines += self._sentences_of_pairs(quantity, ranks, size)
        if not self.ranges(RANKS[0]):
            lines.append(
                "Ranks over these questions need equally many answers to each, at least two."
            )
        return lines + cost_of_dependence(record) + remarks(record)

    def _sentences_of_pairs(self, quantity: str, ranks: str, size: str) -> list[str]:
        """How many pairs differ, and what this assumes; empty where no pair has an interval."""
        pairs = self.of(quantity)
        bounds = [row.lower_bound for row in pairs if row.lower_bound]
        if not bounds:
            return []
        first = bounds[0]
        also = " and the ranges of ranks" if self.ranges(ranks) else ""
        return [
            f"{first.on(size).capitalize()}, {self.differ(quantity)} of {plural(len(pairs), 'pair')} are shown to "
            f"differ. These pairs{also} hold together {level(self.record['alpha'])} (Holm, both directions), assuming "
            f"{first.assumes}."
        ]


def _range(lowest: int, highest: int) -> str:
    """The ranks that a run may have, in words."""
    if lowest == highest:
        return str(lowest)
    return f"{lowest} to {highest}"


class Places(NamedTuple):
    """Two runs by their places, the earlier first."""

    a: int
    b: int


Effects = Mapping[Places, Difference | None]


def rank(sides: Sequence[Side], alpha: float = 0.05, independent: bool = False) -> Ranking:
    """The ranks that each run may have by its mean over the questions that all runs have.

    All pairs that differ and all ranges of ranks hold together with probability 1 - alpha, over these questions and, by
    themselves, over questions like these (Holm over both directions of all pairs). Where nothing may be claimed of a run,
    the means stand alone, as recorded, without ranks and without pairs that differ.

    Parameters
    ----------
    sides
        Two or more runs.
    alpha
        The level of each of the two families.
    independent
        Declares that no two sides share random numbers.

    Raises
    ------
    BadInput
        If no question is common to all runs.
    """
    check_alpha(alpha)
    names = [side.name for side in sides]
    refutations = refused(sides, names)
    found = _common_pairs(sides, independent)
    pooled: dict[Places, Difference | None] = dict.fromkeys(found.pairs)
    population = dict(pooled)
    if not refutations:
        for places, pairs in found.pairs.items():
            pooled[places] = pairs.average(alpha)
            population[places] = pairs.population(alpha)
    first_pair = found.pairs[Places(0, 1)]
    # With one answer of 0 or 1 to each question the tests are sign tests, not tests of means.
    has_several = any(len(scores) > 1 for scores in first_pair.first)

    runs = _means(names, found)
    over_these = _Family(RANKS[0], AVERAGES[0], Covers.AVERAGE, pooled, is_of_means=has_several)
    over_like_these = _Family(
        RANKS[1], AVERAGES[1], Covers.POPULATION, population, is_of_means=True
    )
    differences = _rank_rows(runs, over_these, alpha)
    differences += _rank_rows(runs, over_like_these, alpha)

    facts = {
        "alpha": alpha,
        "metric": sides[0].metric,
        "questions": len(first_pair.pairs),
        "refused": refutations,
    }
    if not refutations:
        dependence = first_pair.dependence(alpha, pooled[Places(0, 1)])
        facts["dependence"] = dependence and asdict(dependence)
    record = record_of(facts, found.missing, found.notes) | {"runs": names} | stated_of(sides)
    rows = [result(WHOLE, "audit", "comparison", "compared", evidence=record)]
    for run in runs:
        rows += run.rows
    return Ranking((*rows, *differences))


def _means(names: Sequence[str], found: _CommonPairs) -> list[Rows]:
    """The rows of each run, which begin with its mean score over the questions that all runs have."""
    runs = []
    for place, name in enumerate(names):
        if place == 0:
            scores = found.pairs[Places(0, 1)].first
        else:
            scores = found.pairs[Places(0, place)].second
        means = [mean(values) for values in scores]
        run = Rows(name)
        run.add("model", "score", "compared", mean(means))
        runs.append(run)
    return runs


@dataclass(frozen=True)
class _CommonPairs:
    """The questions that all runs have, for each two runs; what is missing and noted names each run beside the first."""

    pairs: Mapping[Places, Pairs]
    missing: list[NotCompared]
    notes: list[str]


def _common_pairs(sides: Sequence[Side], independent: bool) -> _CommonPairs:
    """Raises `BadInput` where no question is common to all sides."""
    names = [side.name for side in sides]
    missing: list[NotCompared] = []
    partners_of_note: dict[str, list[str]] = {}
    pair_of_question: dict[Places, dict[str, Pair]] = {}
    for (i, a), (j, b) in combinations(enumerate(sides), 2):
        not_compared: list[NotCompared] = []
        settings: list[str] = []
        pairs = joined(a, b, not_compared, settings, independent)
        pair_of_question[Places(i, j)] = {pair.id: pair for pair in pairs}
        about = f"{a.name} (A) and {b.name} (B): "
        if i == 0:
            for note in settings:
                partners_of_note.setdefault(note, []).append(b.name)
        for entry in not_compared:
            if i == 0 or entry.id is None:
                missing.append(replace(entry, reason=about + entry.reason))

    in_all = set(pair_of_question[Places(0, 1)])
    for by_question in pair_of_question.values():
        in_all &= by_question.keys()
    common = [question for question in pair_of_question[Places(0, 1)] if question in in_all]
    if not common:
        reasons = dict.fromkeys([entry.reason for entry in missing])
        raise BadInput(
            f"{', '.join(names)}: no question is common to all runs ({'; '.join(reasons)})."
        )
    pairs_of_places = {}
    for places, by_question in pair_of_question.items():
        chosen = [by_question[question] for question in common]
        pairs_of_places[places] = Pairs(sides[places.a], sides[places.b], chosen)
    notes = stops(sides, names)
    for note, partners in partners_of_note.items():
        about = ", ".join(partners)
        if len(partners) == len(sides) - 1 > 1:
            about = "each of the others"
        notes.append(f"{names[0]} (A) and {about} (B): {note}")
    return _CommonPairs(pairs_of_places, missing, notes)


@dataclass(frozen=True)
class _Family:
    """The differences of all pairs that hold together: over these questions, or over questions like these.

    ``is_of_means``: the tests are tests of means, so that they prove ranks.
    """

    rank: str
    difference: str
    covers: Covers
    effects: Effects
    is_of_means: bool


def _rank_rows(runs: Sequence[Rows], family: _Family, alpha: float) -> list[Result]:
    """Add the ranks that each run may have, and return the differences of the pairs: all hold together (Holm)."""
    effects = family.effects
    p_values = np.ones((len(runs), len(runs)))
    for (i, j), effect in effects.items():
        if effect is not None:
            p_values[j, i] = effect.p_above()
            p_values[i, j] = effect.p_below()
    off_diagonal = ~np.eye(len(runs), dtype=bool)
    rejected, _ = holm(p_values[off_diagonal], 0.0, alpha)
    # [i, j]: run i is proved to score higher than run j
    higher = np.zeros(p_values.shape, dtype=bool)
    higher[off_diagonal] = rejected

    first = next(iter(effects.values()))
    is_proved = family.is_of_means and None not in effects.values()
    for run, ranks in zip(runs, rank_ranges(higher), strict=True):
        if first is None or not is_proved:
            run.add("model", family.rank, "compared")
            continue
        ends = both_ends(*ranks, alpha, family.covers, first.assumes, "Holm, both directions")
        run.add("model", family.rank, "compared", None, *ends)
    differences: list[Result] = []
    for (i, j), effect in effects.items():
        pair = Rows(runs[j].model)
        holds = bool(higher[i, j] or higher[j, i])
        add_average(pair, family.difference, effect, holds, family.covers, against=runs[i].model)
        differences += pair.rows
    return differences
