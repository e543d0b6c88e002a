"""The columns of the tables of models and of questions: the quantities of the vocabulary that have a value in this run."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lethe.measure.run import Run
from lethe.results import quantities
from lethe.results.quantities import SAID, Quantity, Scope, Unit
from lethe.results.table import Numbers, Result
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.bounds import possible
from lethe.text import NONE, count, label, number, share, shares, yes_or_no

NEARLY = 0.999  # a larger probability is not distinguished from certainty
SIGNS = ("> ", "≥ ", "≤ ", "–")
IN_WORDS = ("above ", "at least ", "at most ", " to ")


def to_three_digits(value: float) -> str:
    """A number to three significant digits, to nearest."""
    return f"{value:.3g}"


SHOWN: dict[Unit, Callable[[float], str]] = {
    "probability": share,
    "score": number,
    "deviation": number,
    "count": count,
    "number": to_three_digits,
    "0 or 1": yes_or_no,
    "yes or no": yes_or_no,
}


@dataclass(frozen=True)
class Column:
    """An estimate, or both ends of an interval, by exported name; ``meaning`` says what it is and what it covers."""

    quantity: Quantity
    names: tuple[str, ...]  # of the estimate, or of the lower and the upper end
    group: str
    head: str
    meaning: str

    @property
    def key(self) -> str:
        """The exported name: of an interval that of its upper end, if it has one."""
        return self.names[-1] or self.names[0]

    def cell(self, numbers: Numbers) -> str:
        """The value as text, an end rounded outward; an end without a guarantee is not shown."""
        if len(self.names) == 2:
            lower, upper = self._ends(numbers)
            return between(lower, upper, self.quantity.unit)
        value = numbers.values.get(self.key)
        if value is None:
            return NONE
        if isinstance(value, str):
            return value
        return SHOWN[self.quantity.unit](value)

    def sort(self, numbers: Numbers) -> str:
        """The number by which the column sorts, of an interval its middle; empty where there is none."""
        value = numbers.value(self.key)
        if len(self.names) == 2 and self.quantity.unit == "probability":
            lower, upper = self._ends(numbers)
            if lower or upper:
                value = _middle(lower, upper)
        if value is None:
            return ""
        return f"{value:.6g}"

    def _ends(self, numbers: Numbers) -> tuple[Bound | None, Bound | None]:
        lower, upper = self.names
        return numbers.bounds.get(lower), numbers.bounds.get(upper)


def _middle(lower: Bound | None, upper: Bound | None) -> float:
    """The middle of the interval of a probability, in [0, 1]; an end that is absent is 0 or 1."""
    least = 0.0
    if lower:
        least = lower.value
    most = 1.0
    if upper:
        most = upper.value
    return (least + most) / 2


def between(
    lower: Bound | None, upper: Bound | None, unit: Unit, say: Sequence[str] = SIGNS
) -> str:
    """Both ends, or the one that says something; never a promise of certainty.

    Parameters
    ----------
    lower, upper
        The ends, each with its guarantee; None: there is none. An end of 0 below, and of nearly 1 above, says nothing.
    unit
        That of the quantity: probabilities are shown as percentages.
    say
        The words for above, at least, at most and to: `SIGNS` in a table, `IN_WORDS` in a sentence.
    """
    above, at_least, at_most, to = say
    certain = math.inf
    if unit == "probability":
        certain = NEARLY
    if lower is not None and lower.value > certain:
        return f"{above}{100 * NEARLY:g}%"

    low = ""
    if lower is not None and lower.value:
        low = end(lower, unit)
    high = ""
    if upper is not None and not (low and upper.value > certain):
        high = end(upper, unit)
    if lower and upper and low and high and unit == "probability":
        low, high = shares(lower, upper)

    if low and high:
        return f"{low}{to}{high}"
    if low:
        return f"{at_least}{low}"
    if high:
        return f"{at_most}{high}"
    return NONE


def end(bound: Bound, unit: Unit) -> str:
    """One end of an interval as text, rounded outward; that of a standard deviation of scores is at most 1/2."""
    if unit == "probability":
        return share(bound.value, bound.side)
    if unit == "deviation":
        return possible(bound).number()
    return bound.number()


def columns(
    run: Run, scope: Scope, all_numbers: Iterable[Numbers]
) -> list[tuple[str, list[Column]]]:
    """The columns with a value in one of ``all_numbers``, by the title of their group, in the vocabulary's order.

    Parameters
    ----------
    run
        Whose words the heads and meanings are in.
    scope
        Of the quantities: those of models or of questions.
    all_numbers
        The numbers of each model, or of each question of each model.
    """
    order = quantities.order()
    say = words(run)
    placed = []
    for names, row in _rows_of_names(all_numbers).items():
        if row.kind.group:
            place = order[scope, row.quantity, row.basis]
            placed.append((place, _column(names, row, say, run.words.questions)))
    placed.sort(key=lambda entry: entry[0])

    groups: list[tuple[str, list[Column]]] = []
    for _, column in placed:
        if not groups or groups[-1][0] != column.group:
            groups.append((column.group, []))
        _, members = groups[-1]
        members.append(column)
    return groups


def _rows_of_names(all_numbers: Iterable[Numbers]) -> dict[tuple[str, ...], Result]:
    """The first row with a value by its exported name, and the first with an end by the names of both ends."""
    row_of_names: dict[tuple[str, ...], Result] = {}
    for numbers in all_numbers:
        for row in numbers.single:
            estimate, *ends = row.names()
            if estimate and row.value is not None:
                row_of_names.setdefault((estimate,), row)
            if any(ends) and (row.lower_bound or row.upper_bound):
                row_of_names.setdefault(tuple(ends), row)
    return row_of_names


def words(run: Run) -> dict[str, str]:
    """What the labels and definitions of the vocabulary say in this run."""
    say = {}
    for name, text in vars(run.words).items():
        if isinstance(text, str):
            say[name] = text
    metrics = run.params.metrics
    say["score"] = label(metrics.leak)
    say["scorer"] = label(metrics.binary)
    say["kept"] = label(metrics.utility_scorer)
    return say


def meaning(row: Result, say: dict[str, str]) -> str:
    """The definition of a row's quantity in the words of the run."""
    return row.kind.definition.format(**say, **_parts(row))


def _column(names: tuple[str, ...], row: Result, say: dict[str, str], of: str) -> Column:
    """The column of an estimate (one name) or of an interval (two); ``of`` says which questions a guarantee is about."""
    of_estimate, *of_ends = row.kind.label.split(" | ")
    is_interval = len(names) == 2
    head = of_estimate
    if is_interval and of_ends:
        head = of_ends[-1]

    about = meaning(row, say)
    bound = row.upper_bound or row.lower_bound
    if is_interval and bound:
        guarantee = bound.guarantee(of)
        if bound.covers is Covers.HELD_OUT:  # the definition says it in the words of the run
            guarantee = f"{bound.level()}, assuming {bound.assumes}"
        about += f"; {guarantee} ({bound.method})".replace("question", say["question"])
    about += f"; access: {SAID[row.kind.access]}"

    return Column(
        quantity=row.kind,
        names=names,
        group=row.kind.group.format(**say),
        head=head.format(**say, **_parts(row)),
        meaning=about,
    )


def _parts(row: Result) -> dict[str, str]:
    """What a label may name of its row: the split, the question or part, and the threshold or number of answers."""
    at = ""
    if row.at is not None:
        at = f"{row.at:,.10g}"
    return {"split": row.split or "", "item": label(row.item or ""), "at": at}
