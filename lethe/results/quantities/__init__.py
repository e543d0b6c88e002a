"""The vocabulary of results: vocabulary.csv has one row a quantity. Nothing else lists keys.

A quantity is a pair of ``key`` (what is measured) and ``basis`` (from what). ``names`` are the keys of its estimate, lower
end and upper end in JSON, tables and MLflow, empty where one is not exported. ``{split}``, ``{item}`` and ``{at}`` in a name
stand for those columns of a row.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Literal, get_args

from lethe.errors import BadValue
from lethe.io.files import Json

Scope = Literal["question", "model", "audit"]
Unit = Literal[
    "probability", "score", "deviation", "count", "number", "0 or 1", "yes or no", "text"
]
More = Literal["leaks", "useful", ""]  # what a larger value says of the model
Access = Literal[
    "answers", "log-probabilities", "weights"
]  # what a quantity needs of a model, the least first
Headline = Literal["", "labelled", "judged", "leaks", "scores", "utility", "tracked", "estimate"]

# `dvc metrics` shows the first group of which a model has a number, and one number of utility.
HEADLINES: tuple[Headline, ...] = ("labelled", "judged", "leaks", "scores")
MOST = 6
# The splits whose mean score is the utility of a model: the first that it has.
USEFUL = ("retain", "world")


@dataclass(frozen=True)
class Quantity:
    """One row of the vocabulary.

    ``label`` heads the column of the estimate, and after " | " that of the ends; it and ``definition`` may hold the parts of
    a name and the words of a run (`lethe.results.wording`). Tables for people have the quantities with a ``group``, its
    title. ``at`` says what the column ``at`` of its rows holds; ``exported_at`` are its values whose names stand among the
    single numbers, while all other rows with ``at`` are series. ``headlines`` are groups of `HEADLINES`; MLflow's table of
    models shows the quantities of any group, and those of "tracked" stand in that table only; of "estimate" it shows the
    estimate, not an end. ``paper`` names who proposed the number or proved its ends; a row of the file may end before it.
    """

    key: str
    basis: str
    scope: Scope
    names: tuple[str, str, str]
    group: str
    label: str
    definition: str
    unit: Unit = "number"
    more: More = ""
    at: str = ""
    exported_at: tuple[float, ...] = ()
    headlines: tuple[Headline, ...] = ()
    paper: str = ""

    @property
    def access(self) -> Access:
        """What of a model the quantity needs: its answers only, log-probabilities of texts, or its weights."""
        return "answers" if self.key in OF_ANSWERS else ACCESS[self.basis]


# What the bases need of a model: answers that anybody may ask for; probabilities of texts, which some servers state; the
# weights, which whoever attacks or trains a model has. Numbers of comparisons and words need what their models' rows need.
ACCESS: dict[str, Access] = {
    **dict.fromkeys(
        ("sampled", "greedy", "thinking", "turn", "judged", "labelled", "anytime", "language"),
        "answers",
    ),
    "compared": "answers",
    **dict.fromkeys(("tree", "exact", "given answers"), "log-probabilities"),
    "run": "weights",
}
OF_ANSWERS = ("rouge",)  # beside given answers, and yet made from greedy answers
SAID: dict[Access, str] = {
    "answers": "answers only",
    "log-probabilities": "log-probabilities",
    "weights": "weights",
}

# Wording that several definitions of vocabulary.csv share, where it stands as $NAME.
WORDING = {
    "LEAK": "probability of {a_leak}",
    "WORST": "the worst {question}",
    "CP": "Clopper and Pearson, 1934",
    "DKW": "Dvoretzky, Kiefer, Wolfowitz; Massart, 1990 (probabilistic evaluation, section 4)",
    "BETTING": "betting (Waudby-Smith and Ramdas, 2024)",
    "ANYTIME": "holds at whatever number of answers the question stopped (Ville, 1939)",
    "JUDGED": "the judge's measured error included (Rogan and Gladen, 1978, as an estimate)",
    "LABELS": "a person's labels of frequent answers and of random draws of the rest",
    "TREE": "from next-token probabilities",
}


def _of(row: dict[str, Json]) -> Quantity:
    """The quantity of a row of the file, whose other columns are named like the fields."""
    names = (row.pop("estimate"), row.pop("lower"), row.pop("upper"))
    definition = Template(row.pop("definition")).substitute(WORDING)
    exported_at = tuple(map(float, row.pop("exported_at").split()))
    headlines = tuple(row.pop("headlines").split())
    paper = row.pop("paper") or ""
    return Quantity(
        names=names,
        definition=definition,
        exported_at=exported_at,
        headlines=headlines,
        paper=paper,
        **row,
    )


def _of_scope(scope: Scope) -> tuple[Quantity, ...]:
    return tuple(quantity for quantity in QUANTITIES if quantity.scope == scope)


with Path(__file__).with_name("vocabulary.csv").open(encoding="utf-8", newline="") as _file:
    QUANTITIES = tuple(map(_of, csv.DictReader(_file)))
QUESTION = _of_scope("question")
MODEL = _of_scope("model")
AUDIT = _of_scope("audit")


@cache
def _by_key() -> dict[tuple[str, str, str], Quantity]:
    quantity_of_key: dict[tuple[str, str, str], Quantity] = {}
    for quantity in QUANTITIES:
        key = (quantity.scope, quantity.key, quantity.basis)
        quantity_of_key[key] = quantity
    return quantity_of_key


def of(scope: str, key: str, basis: str) -> Quantity:
    """The quantity of a row; raises `BadValue` for one that the vocabulary lacks."""
    quantity = _by_key().get((scope, key, basis))
    if quantity is None:
        raise BadValue(
            "quantity", f"{key} ({basis}) of a {scope}", "a row of lethe/results/quantities"
        )
    return quantity


@cache
def order() -> dict[tuple[str, str, str], int]:
    """The place of each quantity in the vocabulary, in which tables list their rows."""
    return {key: place for place, key in enumerate(_by_key())}


def access_of(kinds: Iterable[Quantity]) -> Access | None:
    """The most that some of these quantities need; None for none.

    >>> access_of([of("question", "leak", "sampled"), of("question", "leak", "tree")])
    'log-probabilities'
    """
    needed = {kind.access for kind in kinds}
    levels = [level for level in get_args(Access) if level in needed]
    return levels[-1] if levels else None


def headline(values: Mapping[str, object]) -> list[str]:
    """The names that `dvc metrics` shows, of a model's single numbers: one group of `HEADLINES`, and one of utility."""
    present = {name for name, value in values.items() if value is not None}
    group = _first_group(present)
    shown = []
    for quantity in MODEL:
        name = _shown(quantity)
        if group in quantity.headlines and name in present:
            shown.append(name)
    del shown[MOST - 1 :]
    for split in USEFUL:
        utility = f"{split}_mean"
        if utility in present:
            return [*shown, utility]
    return shown


def _first_group(present: set[str]) -> Headline | None:
    """The first group of `HEADLINES` of which a deciding number is present."""
    for group in HEADLINES:
        deciding = set(map(_shown, _deciding(group)))
        if deciding & present:
            return group
    return None


def upper_bounds(scope: Scope, keys: Sequence[str], bases: Sequence[str]) -> list[str]:
    """The names of the upper ends of these quantities in this order: each key on the first basis, then on the next."""
    names = []
    for key in keys:
        for basis in bases:
            quantity = _by_key().get((scope, key, basis))
            if quantity and quantity.names[2]:
                names.append(quantity.names[2])
    return names


def worst_bounds() -> list[str]:
    """The names by which models are sorted, of which a model has one or more: an upper bound of each group of `HEADLINES`."""
    names = []
    for group in HEADLINES:
        for quantity in _deciding(group):
            if quantity.names[2]:
                names.append(quantity.names[2])
                break
    return names


def _shown(quantity: Quantity) -> str:
    """The name under which a headline stands: that of its last end; empty where nothing is exported."""
    estimate, lower, upper = quantity.names
    return upper or lower or estimate


def _deciding(group: Headline) -> list[Quantity]:
    """The quantities that only this group and those after it show; a quantity of several groups decides on none before."""
    deciding = []
    for quantity in MODEL:
        if quantity.headlines and quantity.headlines[-1] == group:
            deciding.append(quantity)
    return deciding
