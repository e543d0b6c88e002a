"""The word on one record: whether the questions about it are bounded, or one of them leaks, from the rows of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from lethe.io.files import Json
from lethe.results.ends import Ends, counted_rows
from lethe.results.table import Result
from lethe.statistics.bound import Bound, Covers, Side

Word = Literal["bounded", "leaks", "open"]
DRAWN_AND_TREE = "an end of the counts and of the answer tree, half of the level each"


@dataclass(frozen=True)
class QuestionOfRecord:
    """A question about the record: leaks among its counted answers, and both ends, each at half of alpha."""

    id: str
    leaks: int
    missing: int
    n: int
    lower: Bound
    upper: Bound


@dataclass(frozen=True)
class RecordFinding:
    """The finding about a record of N questions beside the threshold ``tau``.

    Each side takes half of ``alpha``: the upper end of the worst question needs no correction, since *bounded* is false only
    if one named question leaks more; the lower end of the worst shares its half among the N questions (Bonferroni). So the
    stated number, whichever it is, is false with probability at most alpha.
    """

    questions: tuple[QuestionOfRecord, ...]
    at_most: Bound
    at_least: Bound
    tau: float
    alpha: float

    @cached_property
    def word(self) -> Word:
        """bounded: every question leaks at most tau; leaks: some question leaks more; open: neither is proved."""
        if self.at_least.value > self.tau:
            return "leaks"
        if self.at_most.value <= self.tau:
            return "bounded"
        return "open"

    @property
    def answers(self) -> int:
        """The counted answers to all questions, those without a judgement among them."""
        return sum(question.n for question in self.questions)

    @property
    def leaks(self) -> int:
        """The answers that were judged to leak."""
        return sum(question.leaks for question in self.questions)

    @property
    def missing(self) -> int:
        """Answers without a judgement, which count as leaks above and as none below."""
        return sum(question.missing for question in self.questions)


def finding_of(
    rows: Sequence[Result], items: Sequence[str], tau: float, alpha: float, scorer: str | None
) -> RecordFinding:
    """The finding about the questions ``items`` of one model.

    Trees whose leak is another than ``scorer`` are left out, and all trees where a person's labels say what a leak is. A
    question without rows has the ends 0 and 1, and leaves the finding open.
    """
    counts, trees = _rows_about(rows, items, scorer)
    ends = Ends.of_rows([*counts, *trees], items)
    half = alpha / 2
    lowers = ends.lower(half)
    uppers = ends.upper(half)
    lowers_together = ends.lower(half / len(items))

    counted = counted_rows(counts)
    guarantee = _Guarantee.of(list(counted.values()), trees, half)
    questions = []
    for place, item in enumerate(items):
        facts: Mapping[str, Json] = {}
        if item in counted:
            facts = counted[item].facts
        question = QuestionOfRecord(
            id=item,
            leaks=int(facts.get("leaks", 0)),
            missing=int(facts.get("missing") or 0),
            n=int(facts.get("n", 0)),
            lower=guarantee.end(lowers[place], "lower", Covers.ONE_PROMPT),
            upper=guarantee.end(uppers[place], "upper", Covers.ONE_PROMPT),
        )
        questions.append(question)
    return RecordFinding(
        questions=tuple(questions),
        at_most=guarantee.end(uppers.max(), "upper", Covers.WORST_PROMPT),
        at_least=guarantee.end(lowers_together.max(), "lower", Covers.WORST_PROMPT),
        tau=tau,
        alpha=alpha,
    )


def _rows_about(
    rows: Sequence[Result], items: Sequence[str], scorer: str | None
) -> tuple[list[Result], list[Result]]:
    """The rows about these questions: those of drawn answers, and those of answer trees that count."""
    asked = set(items)
    counts = []
    trees = []
    for row in rows:
        if row.scope != "question" or str(row.item) not in asked:
            continue
        if row.basis in ("tree", "exact"):
            trees.append(row)
        else:
            counts.append(row)
    if trees and (leak_of_trees(rows) != scorer or is_labelled(counts)):
        return counts, []
    return counts, trees


@dataclass(frozen=True)
class _Guarantee:
    """What the ends of one finding share: the level, the assumptions and the method."""

    alpha: float
    assumes: str
    method: str

    @classmethod
    def of(cls, counted: Sequence[Result], trees: Sequence[Result], alpha: float) -> _Guarantee:
        """The guarantee of ends that rest on these rows, all of one way of counting."""
        method = "no evidence"
        assumes = "nothing"
        if counted:
            method = counted[0].method
            assumes = counted[0].assumes
        if trees:
            method += f"; {DRAWN_AND_TREE}"
        for row in trees:
            if row.assumes:
                assumes += f"; {row.assumes}"
                break
        return cls(alpha, assumes, method)

    def end(self, value: float, side: Side, covers: Covers) -> Bound:
        return Bound(float(value), side, self.alpha, covers, self.assumes, self.method)


def is_labelled(rows: Sequence[Result]) -> bool:
    """Whether a person's labels, and no scorer, say which answers of the rows leak."""
    return any(row.basis == "labelled" for row in counted_rows(rows).values())


def leak_of_trees(rows: Sequence[Result]) -> str | None:
    """The scorer that says what a leaking answer of a tree is; None where the rows do not say."""
    for row in rows:
        if row.quantity == "queried" and row.basis == "exact":
            return str(row.facts["how"]["leak"])
    return None
