"""The licence of a claim: whether numbers may carry a word, a "with probability" or an open gate.

A bound holds where its assumptions do. Nobody can prove them from a file or a server, but many facts refute them. Who reads
numbers states such facts as a `Source`; every command asks `refusals` before it claims anything, and claims nothing where
there is a reason. A count, a mean and a table of scores need no licence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lethe.errors import plural
from lethe.results.table import Result

Direction = Literal["leak", "no leak", "unknown"]

DRAW_AGAIN = (
    "Draw the answers again by sampling, each with random numbers of its own, and give those."
)
SHOWN_ROWS = 3  # rows that a reason names; more say no more
# A bound and a mean of the same numbers are computed in two orders: the last bits may differ.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Source:
    """What is known of where a set of numbers comes from; each fact refutes an assumption of their bounds.

    A sentence has no full stop at its end. ``failed_probes`` are the names of the probes of a server that failed, and
    ``repeated_answers`` says why answers are no new draws: repeats, cached, or of one seed. ``deterministic`` says why one
    answer has no chance in it. ``below_own_mean`` names the rows whose upper bound lies below their mean, or whose lower
    bound lies above it. ``ids_not_understood`` says which column looks like ids and was not used. ``score_means`` is what a
    score of 1 means. ``unlabelled_judge`` says which judge's verdicts, without labels, stand for leaks.
    ``labels_not_random`` says why labels are no random draws, ``unfinished`` why a run did not end, ``unchecked_engine`` why
    an engine was not believed on this model.
    """

    failed_probes: tuple[str, ...] = ()
    repeated_answers: str | None = None
    deterministic: str | None = None
    below_own_mean: tuple[str, ...] = ()
    ids_not_understood: str | None = None
    score_means: Direction = "leak"
    unlabelled_judge: str | None = None
    labels_not_random: str | None = None
    unfinished: str | None = None
    unchecked_engine: str | None = None

    def joined(self, other: Source) -> Source:
        """What is known of both; of two sentences on one fact the first stays."""
        more: dict[str, object] = {}
        for name, value in vars(other).items():
            known = getattr(self, name)
            if isinstance(known, tuple):
                more[name] = tuple(dict.fromkeys((*known, *value)))
            elif known in (None, "leak"):
                more[name] = value
        return replace(self, **more)


def refusals(source: Source) -> list[str]:
    """Why numbers of this source may carry no claim, a text for each reason; empty where they may.

    Each text says what refutes the claim, and ends in what would open the gate.

    >>> refusals(Source())
    []
    >>> print(refusals(Source(failed_probes=("draws",)))[0])
    The server failed the probe draws, so its answers may be no independent draws. Draw from a server that passes its \
probes: switch off its cache of answers, or give each request a seed (--seeded).
    """
    return list(_reasons(source))


def _reasons(source: Source) -> Iterable[str]:
    if source.failed_probes:
        probes = "probe" if len(source.failed_probes) == 1 else "probes"
        yield (
            f"The server failed the {probes} {', '.join(source.failed_probes)}, so its answers may be no independent draws. "
            "Draw from a server that passes its probes: switch off its cache of answers, or give each request a seed "
            "(--seeded)."
        )
    if source.repeated_answers:
        yield f"{source.repeated_answers}, so its answers are no independent draws. {DRAW_AGAIN}"
    if source.deterministic:
        yield (
            f"{source.deterministic}, so an answer has no chance in it and says nothing of the answers that sampling would "
            "bring. Draw the answers again at a temperature above 0, and give those."
        )
    if source.below_own_mean:
        yield _outside(source.below_own_mean)
    if source.ids_not_understood:
        yield (
            f"{source.ids_not_understood}, so answers to several questions may stand as draws of one. Name the column of the "
            "questions with --by."
        )
    yield from _of_meaning(source)
    if source.unfinished:
        yield (
            f"{source.unfinished}, and what ended it may depend on the answers. Let the run end, and give all of its answers."
        )
    if source.unchecked_engine:
        yield (
            f"{source.unchecked_engine}, so its answers may not be draws of this model. Draw with an engine that agrees with "
            "whole passes on this model (--engine transformers)."
        )


def _of_meaning(source: Source) -> Iterable[str]:
    """Why a high score, or a label, may be no leak."""
    if source.score_means == "unknown":
        yield (
            "It is not stated whether a high or a low score is a leak, so no bound of leaks exists. Say which: --leak-is "
            "high or --leak-is low."
        )
    if source.score_means == "no leak":
        yield (
            "A high score of this source is no leak, so a bound of the score is no bound of leaks. Turn the scores: "
            "--leak-is low."
        )
    if source.unlabelled_judge:
        yield (
            f"{source.unlabelled_judge}, so its verdicts are bounded and not the leaks. Label random draws of these answers "
            "(`lethe label`), and give the labels (--labels)."
        )
    if source.labels_not_random:
        yield (
            f"{source.labels_not_random}, so the labels are no random draws of the answers. Label the draws that "
            "`lethe label` asks for, of every question, and give those."
        )


def _outside(rows: Sequence[str]) -> str:
    named = ", ".join(rows[:SHOWN_ROWS])
    if len(rows) > SHOWN_ROWS:
        named += ", …"
    which = "that row" if len(rows) == 1 else f"each of {plural(len(rows), 'row')}"
    return (
        f"The mean of the scores lies outside its own bounds ({named}), which independent draws in sampling order do not "
        f"bring: the scores of {which} depend on each other or are sorted, or hold several questions under one name. Give "
        "the scores in the order of the draws, and name the column of the questions with --by."
    )


MEANS = ("score", "score_betting")  # quantities whose ends are about the mean of the scores


@dataclass(frozen=True)
class _Numbers:
    """Which scores a row is about."""

    model: str
    scope: str
    item: str | None
    split: str | None

    @classmethod
    def of(cls, row: Result) -> _Numbers:
        return cls(row.model, row.scope, row.item, row.split)


def outside_own_mean(rows: Iterable[Result]) -> tuple[str, ...]:
    """The questions (for numbers of a whole model, the model) with a bound of the mean that excludes the mean itself.

    A bound that counts a missing score as the worst is compared with the mean of the judged scores, which such a bound must
    contain too.
    """
    rows = list(rows)
    means: dict[_Numbers, float] = {}
    for row in rows:
        if row.quantity == "score" and row.basis == "sampled" and row.estimate is not None:
            means[_Numbers.of(row)] = row.estimate
    outside: dict[str, None] = {}  # in the order of the rows, each name once
    for row in rows:
        mean = means.get(_Numbers.of(row))
        if mean is None or row.quantity not in MEANS or row.basis not in ("sampled", "anytime"):
            continue
        below = row.upper is not None and row.upper < mean - ROUNDING
        above = row.lower is not None and row.lower > mean + ROUNDING
        if below or above:
            outside[str(row.model if row.item is None else row.item)] = None
    return tuple(outside)
