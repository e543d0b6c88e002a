"""The vocabulary of results: vocabulary.csv has one row a quantity. Nothing else lists keys.

A quantity is a pair of ``key`` (what is measured) and ``basis`` (from what). ``names`` are the keys of its estimate, lower
end and upper end in JSON, tables and MLflow, empty where one is not exported. ``{split}``, ``{item}`` and ``{at}`` in a name
stand for those columns of a row.
"""

import csv
from collections.abc import Mapping, Sequence
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
Headline = Literal["", "stopped", "labelled", "judged", "leaks", "scores", "utility", "tracked"]

# `dvc metrics` shows the first group of which a model has a number, and one number of utility.
HEADLINES: tuple[Headline, ...] = ("stopped", "labelled", "judged", "leaks", "scores")
MOST = 6
USEFUL = (
    "retain",
    "world",
)  # the splits whose mean score is the utility of a model: the first that it has


@dataclass(frozen=True)
class Quantity:
    """One row of the vocabulary.

    ``label`` heads the column of the estimate, and after " | " that of the ends; it and ``definition`` may hold the parts of
    a name and the words of a run (`lethe.results.wording`). Tables for people have the quantities with a ``group``, its
    title. ``at`` says what the column ``at`` of its rows holds; ``exported_at`` are its values whose names stand among the
    single numbers, while all other rows with ``at`` are series. ``headlines`` are groups of `HEADLINES`; MLflow shows the
    quantities of any group as metrics, and those of "tracked" only MLflow.
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
    return Quantity(
        names=(row.pop("estimate"), row.pop("lower"), row.pop("upper")),
        definition=Template(row.pop("definition")).substitute(WORDING),
        exported_at=tuple(map(float, row.pop("exported_at").split())),
        headlines=tuple(row.pop("headlines").split()),
        **row,
    )


with Path(__file__).with_name("vocabulary.csv").open(encoding="utf-8", newline="") as _file:
    QUANTITIES = tuple(map(_of, csv.DictReader(_file)))
QUESTION, MODEL, AUDIT = (
    tuple(one for one in QUANTITIES if one.scope == scope) for scope in get_args(Scope)
)


@cache
def _by_key() -> dict[tuple[str, str, str], Quantity]:
    return {(one.scope, one.key, one.basis): one for one in QUANTITIES}


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


def headline(values: Mapping[str, object]) -> list[str]:
    """The names that `dvc metrics` shows, of a model's single numbers: one group of `HEADLINES`, and one of utility."""
    present = {name for name, value in values.items() if value is not None}
    group = next(
        (one for one in HEADLINES if any(_shown(row) in present for row in _deciding(one))), ""
    )
    shown = [_shown(row) for row in MODEL if group and group in row.headlines]
    utility = [name for name in (f"{split}_mean" for split in USEFUL) if name in present]
    return [name for name in shown if name in present][: MOST - 1] + utility[:1]


def upper_bounds(scope: Scope, keys: Sequence[str], bases: Sequence[str]) -> list[str]:
    """The names of the upper ends of these quantities in this order: each key on the first basis, then on the next."""
    rows = [_by_key().get((scope, key, basis)) for key in keys for basis in bases]
    return [row.names[2] for row in rows if row and row.names[2]]


def worst_bounds() -> list[str]:
    """The names by which models are sorted, of which a model has one or more: an upper bound of each group of `HEADLINES`."""
    uppers = [
        next((row.names[2] for row in _deciding(group) if row.names[2]), "") for group in HEADLINES
    ]
    return [name for name in uppers if name]


def _shown(quantity: Quantity) -> str:
    """The name under which a headline stands: that of its last end."""
    return [name for name in quantity.names if name][-1]


def _deciding(group: Headline) -> list[Quantity]:
    """The quantities that only this group and those after it show; a quantity of several groups decides on none before."""
    return [row for row in MODEL if row.headlines and row.headlines[-1] == group]
