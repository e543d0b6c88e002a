"""The licence of a claim: whether numbers may carry a word, a "with probability" or an open gate.

A bound holds where its assumptions do. Nobody can prove them from a file or a server, but many facts refute them. Who reads
numbers states such facts as a `Source`; every command asks `refusals` before it claims anything, and claims nothing where
there is a reason. A count, a mean and a table of scores need no licence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from lethe.errors import plural
from lethe.io.facts import scorer_of
from lethe.io.files import Json
from lethe.registry import JUDGES
from lethe.results.table import Numbers, Result

Direction = Literal["leak", "no leak", "unknown"]

DRAW_AGAIN = (
    "Draw the answers again by sampling, each with random numbers of its own, and give those."
)
SHOWN_ROWS = 3  # rows that a reason names; more say no more
# The betting bounds are roots, found to 1e-9, and a mean's last bits depend on the order of its sum.
ROUNDING = 1e-7
DRAWN = ("sampled", "anytime")  # bases of numbers about sampled answers
OF_LEAKS = ("leak", "pass_hat_k", "share_above")  # how the names of quantities about leaks begin


@dataclass(frozen=True)
class Source:
    """What is known of where a set of numbers comes from; each fact refutes an assumption of their bounds.

    A sentence has no full stop at its end. ``failed_probes`` are the names of the probes of a server that failed;
    ``failed_probes_of_walk`` are those of a server whose stated probabilities were walked instead of drawn from.
    ``repeated_answers`` says why answers are no new draws: repeats, cached, or of one seed. ``deterministic`` says why an
    answer has no chance in it. ``below_own_mean`` names the rows whose upper bound lies below their mean.
    ``ids_not_understood`` says which column looks like ids and was not used. ``score_means`` is what a score of 1 means.
    ``unlabelled_judge`` says which judge's verdicts, without labels, stand for leaks. ``labels_not_random`` says why labels
    are no random draws, ``unfinished`` why a run did not end, ``unchecked_engine`` why an engine was not believed on this
    model, ``mixed`` why the answers to a question are those of several models or to several questions. ``refused`` holds the
    reasons, whole, for which the file that the numbers were made from carries no claim.
    """

    failed_probes: tuple[str, ...] = ()
    failed_probes_of_walk: tuple[str, ...] = ()
    repeated_answers: str | None = None
    deterministic: str | None = None
    below_own_mean: tuple[str, ...] = ()
    ids_not_understood: str | None = None
    score_means: Direction = "leak"
    unlabelled_judge: str | None = None
    labels_not_random: str | None = None
    unfinished: str | None = None
    unchecked_engine: str | None = None
    mixed: str | None = None
    refused: tuple[str, ...] = ()

    def joined(self, other: Source) -> Source:
        """What is known of both; of two sentences on one fact the first stays."""
        return Source(
            failed_probes=_both(self.failed_probes, other.failed_probes),
            failed_probes_of_walk=_both(self.failed_probes_of_walk, other.failed_probes_of_walk),
            repeated_answers=self.repeated_answers or other.repeated_answers,
            deterministic=self.deterministic or other.deterministic,
            below_own_mean=_both(self.below_own_mean, other.below_own_mean),
            ids_not_understood=self.ids_not_understood or other.ids_not_understood,
            score_means=other.score_means if self.score_means == "leak" else self.score_means,
            unlabelled_judge=self.unlabelled_judge or other.unlabelled_judge,
            labels_not_random=self.labels_not_random or other.labels_not_random,
            unfinished=self.unfinished or other.unfinished,
            unchecked_engine=self.unchecked_engine or other.unchecked_engine,
            mixed=self.mixed or other.mixed,
            refused=_both(self.refused, other.refused),
        )


def of_scores(source: Source) -> Source:
    """What is known of scores as scores, whatever they say of leaks."""
    return replace(source, score_means="leak", unlabelled_judge=None)


def without_labels(column: str) -> str | None:
    """Why verdicts in a column of scores say nothing of leaks until a person's labels are given; None for another column."""
    if scorer_of(column) not in JUDGES:
        return None
    return f"No label was given for the judge {scorer_of(column)}"


def _both(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


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
    yield from source.refused
    if source.mixed:
        yield (
            f"{source.mixed}, so the answers are no draws of one model to one question. Give a file for each model, and each "
            "question a name of its own."
        )
    if source.failed_probes:
        yield (
            f"The server failed {_probes(source.failed_probes)}, so its answers may be no independent draws. "
            "Draw from a server that passes its probes: switch off its cache of answers, or give each request a seed "
            "(--seeded)."
        )
    if source.failed_probes_of_walk:
        yield (
            f"The server failed {_probes(source.failed_probes_of_walk)}, so its answers may not come as often as it states. "
            "Walk a server that passes its probes: one model throughout, its settings obeyed, no answers from a store."
        )
    if source.repeated_answers:
        yield f"{source.repeated_answers}, so its answers are no independent draws. {DRAW_AGAIN}"
    if source.deterministic:
        yield (
            f"{source.deterministic}, so an answer has no chance in it and says nothing of the answers that sampling would "
            "bring. Draw the answers again at a temperature above 0, and give those."
        )
    if source.below_own_mean:
        yield _below(source.below_own_mean)
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


def _probes(names: Sequence[str]) -> str:
    return ", ".join(f"the probe {name}" for name in names)


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
            f"{source.labels_not_random}, so the labels are no random draws of the answers. Label a random "
            "draw of a random question, without sight of text or verdict, again and again, and give those."
        )


def _below(rows: Sequence[str]) -> str:
    named = ", ".join(rows[:SHOWN_ROWS])
    if len(rows) > SHOWN_ROWS:
        named += ", …"
    which = f"each of {plural(len(rows), 'row')}"
    if len(rows) == 1:
        which = "that row"
    return (
        f"An upper bound lies below the mean of its own scores ({named}), which independent draws in sampling order do not "
        f"bring: the scores of {which} depend on each other or are sorted, or hold several questions under one name. Give "
        "the scores in the order of the draws, and name the column of the questions with --by."
    )


# Of the quantities whose ends are about the mean or the spread of the scores: the quantity that states it.
STATED_BY = {"score": "score", "score_betting": "score", "sd": "sd", "sd_betting": "sd"}


class _Value(NamedTuple):
    """Which quantity of which scores a row is about."""

    quantity: str
    model: str
    scope: str
    item: str | None
    split: str | None

    @classmethod
    def of(cls, row: Result) -> _Value:
        return cls(STATED_BY[row.quantity], row.model, row.scope, row.item, row.split)


@dataclass(frozen=True)
class Excluded:
    """An end that lies on the wrong side of the mean, or of the standard deviation, of the very scores it is about."""

    row: Result
    value: float

    @property
    def name(self) -> str:
        """The question; for numbers of a whole model, the model."""
        return str(self.row.model if self.row.item is None else self.row.item)

    @property
    def is_below_the_mean(self) -> bool:
        below = self.row.upper is not None and self.row.upper < self.value
        return below and STATED_BY[self.row.quantity] == "score"


def excluded(rows: Iterable[Result]) -> list[Excluded]:
    """The rows with an end that excludes the value of the same scores.

    An end that counts a missing score as the worst is compared with the value of the judged scores, which such an end must
    not exclude either.
    """
    about = [row for row in rows if row.quantity in STATED_BY and row.basis in DRAWN]
    values: dict[_Value, float] = {}
    for row in about:
        if row.quantity in STATED_BY.values() and row.estimate is not None:
            values[_Value.of(row)] = row.estimate
    found = []
    for row in about:
        value = values.get(_Value.of(row))
        if value is not None and excludes(row, value):
            found.append(Excluded(row, value))
    return found


def below_own_mean(rows: Iterable[Result]) -> tuple[str, ...]:
    """The questions (for numbers of a whole model, the model) with an upper bound below the mean of the same scores."""
    names = [found.name for found in excluded(rows) if found.is_below_the_mean]
    return tuple(dict.fromkeys(names))


def excludes(row: Result, value: float) -> bool:
    """Whether an end of the row lies on the wrong side of ``value``."""
    below = row.upper is not None and row.upper < value - ROUNDING
    above = row.lower is not None and row.lower > value + ROUNDING
    return below or above


def containing(row: Result, value: float) -> Result:
    """The row with its ends moved outward to ``value`` where they exclude it; a wider interval holds too."""
    lower = None if row.lower is None else min(row.lower, value)
    upper = None if row.upper is None else max(row.upper, value)
    return replace(row, lower=lower, upper=upper)


def without_ends(row: Result) -> Result:
    """The row as an estimate alone."""
    return replace(
        row,
        lower=None,
        upper=None,
        alpha_lower=None,
        alpha_upper=None,
        covers="",
        assumes="",
        method="",
    )


def licensed(model: str, rows: Sequence[Result], source: Source) -> list[Result]:
    """The rows of a model as its source allows: all of them; or without their ends, with one row that says why."""
    reasons = refusals(source)
    if not reasons:
        return list(rows)
    refused = Result(model, "model", "refused", "sampled", evidence={"reasons": reasons})
    return [*without_claims(rows), refused]


def of_verdicts(rows: Iterable[Result], judge: str) -> list[Result]:
    """The rows of a model that a judge without labels judged: each end about leaks says that it is about verdicts, and the
    row of the answers says why no word is claimed."""
    (reason,) = refusals(Source(unlabelled_judge=f"No label was given for the judge {judge}"))
    said = f"a leak is what the judge {judge} calls one"
    stated = []
    for row in rows:
        if (row.scope, row.quantity) == ("model", "answers"):
            row = replace(row, evidence={**row.facts, "unlabelled": reason})
        elif row.ends and row.basis in DRAWN and row.quantity.startswith(OF_LEAKS):
            row = replace(row, assumes=f"{row.assumes}; {said}" if row.assumes else said)
        stated.append(row)
    return stated


def reasons_of(numbers: Numbers) -> tuple[str, ...]:
    """Why nothing is claimed of a model, by its rows; empty where it may be."""
    return tuple(numbers.facts("refused").get("reasons", ()))


def of_drawing(about: Mapping[str, Json], rows: Iterable[Result]) -> Source:
    """What is known of answers that Lethe drew: by the record of the draws, `about.json`, and by their rows."""
    served = about.get("served") or {}
    unchecked = (about.get("engine_check") or {}).get("unchecked")
    if unchecked is not None:
        unchecked = f"The engine was not compared with whole passes of this model ({unchecked})"
    return Source(
        failed_probes=failed_of(served.get("probes", ())),
        below_own_mean=below_own_mean(rows),
        unfinished=about.get("unfinished"),
        unchecked_engine=unchecked,
    )


def failed_of(probes: Iterable[Mapping[str, Json]]) -> tuple[str, ...]:
    """The names of the probes that failed, of those that a claim needs; ``probes`` are as `about.json` records them."""
    failed = [probe for probe in probes if probe["needed"] and probe["passed"] is False]
    return tuple(str(probe["name"]) for probe in failed)


# Counts and lists that are made from bounds, and estimates that hold for independent draws alone.
CLAIMS = (
    "share_above",
    "certified_together",
    "together",
    "leak_at_k",
    "leak_at_k_worst",
    "pass_hat_k",
    "judge_fits",
    "score_bound",
    "tail_bound",
)


def without_claims(rows: Iterable[Result]) -> list[Result]:
    """The rows without their ends: counts, means and other plain statistics of the draws, which need no licence."""
    plain = []
    for row in rows:
        is_bound_alone = row.ends and row.estimate is None and row.text is None
        if is_bound_alone or row.quantity in CLAIMS:
            continue
        if row.ends:
            row = without_ends(row)
        plain.append(row)
    return plain
