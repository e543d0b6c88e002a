"""The columns of the tables of models and of questions: the quantities of the vocabulary that have a value in this run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from lethe.measure.run import Run
from lethe.results import quantities
from lethe.results.quantities import Quantity, Scope, Unit
from lethe.results.table import Numbers, Result
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.bounds import possible
from lethe.text import NONE, count, label, number, share, shares

NEARLY = 0.999  # a larger probability is not distinguished from certainty
SIGNS = ("> ", "≥ ", "≤ ", "–")
IN_WORDS = ("above ", "at least ", "at most ", " to ")
SHOWN: dict[Unit, Callable[[float], str]] = {
    "probability": share,
    "score": number,
    "deviation": number,
    "count": count,
    "number": lambda value: f"{value:.3g}",
    "0 or 1": lambda value: "yes" if value else "no",
    "yes or no": lambda value: "yes" if value else "no",
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
                low = lower.value if lower else 0
                high = upper.value if upper else 1
                value = (low + high) / 2
        return "" if value is None else f"{value:.6g}"

    def _ends(self, numbers: Numbers) -> tuple[Bound | None, Bound | None]:
        lower, upper = self.names
        return numbers.bounds.get(lower), numbers.bounds.get(upper)


def between(
    lower: Bound | None, upper: Bound | None, unit: Unit, say: Sequence[str] = SIGNS
) -> str:
    """Both ends, or the one that says something; never a promise of certainty."""
    above, least, most, to = say
    certain = NEARLY if unit == "probability" else float("inf")
    if lower is not None and lower.value > certain:
        return f"{above}{100 * NEARLY:g}%"
    low = "" if lower is None or not lower.value else end(lower, unit)
    high = "" if upper is None or (upper.value > certain and low) else end(upper, unit)
    if lower and upper and low and high and unit == "probability":
        low, high = shares(lower, upper)
    if low and high:
        return f"{low}{to}{high}"
    if low:
        return f"{least}{low}"
    return f"{most}{high}" if high else NONE


def end(bound: Bound, unit: Unit) -> str:
    """One end of an interval as text, rounded outward."""
    if unit == "probability":
        return share(bound.value, bound.side)
    return (possible(bound) if unit == "deviation" else bound).number()


def columns(
    run: Run, scope: Scope, all_numbers: Iterable[Numbers]
) -> list[tuple[str, list[Column]]]:
    """The columns with a value in one of ``all_numbers``, by the title of their group, in the vocabulary's order."""
    row_of_names: dict[tuple[str, ...], Result] = {}
    for numbers in all_numbers:
        for row in numbers.single:
            estimate, *ends = row.names()
            if estimate and row.value is not None:
                row_of_names.setdefault((estimate,), row)
            if any(ends) and (row.lower_bound or row.upper_bound):
                row_of_names.setdefault(tuple(ends), row)

    order = quantities.order()
    say = words(run)
    made = []
    for names, row in row_of_names.items():
        if row.kind.group:
            place = order[scope, row.quantity, row.basis]
            made.append((place, _column(names, row, say, run.words.questions)))
    made.sort(key=lambda entry: entry[0])

    grouped = groupby((column for _, column in made), key=lambda column: column.group)
    return [(title, list(members)) for title, members in grouped]


def words(run: Run) -> dict[str, str]:
    """What the labels and definitions of the vocabulary say in this run."""
    say = {name: text for name, text in vars(run.words).items() if isinstance(text, str)}
    metrics = run.params.metrics
    say["score"] = label(metrics.leak)
    say["scorer"] = label(metrics.binary)
    say["kept"] = label(metrics.utility_scorer)
    return say


def meaning(row: Result, say: dict[str, str]) -> str:
    return row.kind.definition.format(**say, **_parts(row))


def _column(names: tuple[str, ...], row: Result, say: dict[str, str], of: str) -> Column:
    heads = row.kind.label.split(" | ")
    head = heads[0 if len(names) == 1 else -1].format(**say, **_parts(row))
    about = meaning(row, say)
    bound = row.upper_bound or row.lower_bound
    if len(names) == 2 and bound:
        if bound.covers is Covers.HELD_OUT:  # the definition says it in the words of the run
            guarantee = f"{bound.level()}, assuming {bound.assumes}"
        else:
            guarantee = bound.guarantee(of)
        about += f"; {guarantee} ({bound.method})".replace("question", say["question"])
    return Column(row.kind, names, row.kind.group.format(**say), head, about)


def _parts(row: Result) -> dict[str, str]:
    return {
        "split": row.split or "",
        "item": label(row.item or ""),
        "at": "" if row.at is None else f"{row.at:,.10g}",
    }
