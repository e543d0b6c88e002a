"""docs/numbers.md: every number by its name, a row for each quantity of the vocabulary that has one."""

from collections.abc import Sequence
from dataclasses import dataclass

from lethe.io.files import Json
from lethe.results.quantities import AUDIT, MODEL, QUESTION, SAID, Quantity
from lethe.results.wording import FORGET
from studies import markdown

HEAD = ("name", "number", "paper", "direction", "what it is", "access")
DIRECTIONS = {"leaks": "lower is better", "useful": "higher is better", "": ""}
# What stands for a part of a name, and for the words of a run in a definition.
PARTS = {"split": "SPLIT", "item": "NAME", "at": "K"}
SCORES = {
    "score": "the bounded score",
    "scorer": "the 0/1 score",
    "kept": "the utility score",
}


@dataclass(frozen=True)
class Row:
    """A quantity: the names of its numbers, what it is, who proposed it, which direction is better, and what of a
    model it needs."""

    names: tuple[str, ...]
    number: str
    paper: str
    direction: str
    what: str
    access: str

    def as_json(self) -> dict[str, Json]:
        return {**vars(self), "names": list(self.names)}


@dataclass(frozen=True)
class Table:
    """The numbers of a model, of a question, or of an audit or game."""

    title: str
    rows: list[Row]


def read() -> list[Table]:
    """Return the tables, the rows in the order of the vocabulary."""
    scopes = {
        "A model": MODEL,
        "A question": QUESTION,
        "An audit, game or attack": AUDIT,
    }
    tables = []
    for title, quantities in scopes.items():
        rows = [_row(quantity) for quantity in quantities if any(quantity.names)]
        tables.append(Table(title, rows))
    return tables


def _row(quantity: Quantity) -> Row:
    """A quantity of the vocabulary as a row of the page."""
    parts = PARTS
    if quantity.at == "x":
        parts = PARTS | {"at": "X"}
    say = {key: text for key, text in vars(FORGET).items() if isinstance(text, str)}
    names = [name.format(**parts) for name in quantity.names if name]
    definition = quantity.definition.format(**say, **SCORES, **parts)
    return Row(
        names=tuple(dict.fromkeys(names)),
        number=_with_group(quantity, definition, say | SCORES),
        paper=quantity.paper,
        direction=DIRECTIONS[quantity.more],
        what=_what(quantity),
        access=SAID[quantity.access],
    )


def _with_group(quantity: Quantity, definition: str, say: dict[str, str]) -> str:
    """The definition, with the title under which tables show it."""
    if not quantity.group:
        return definition
    return f"{quantity.group.format(**say)}: {definition}"


def _what(quantity: Quantity) -> str:
    """Whether the names are of an estimate, of ends with a guarantee, or of both."""
    if quantity.unit == "text":
        return "a word"
    estimate, lower, upper = map(bool, quantity.names)
    ends = ""
    if lower and upper:
        ends = "interval"
    elif lower:
        ends = "lower bound"
    elif upper:
        ends = "upper bound"
    if not ends and quantity.unit == "count":
        return "count"
    if not ends:
        return "estimate"
    if estimate:
        return f"estimate, {ends}"
    return ends


def as_json(tables: Sequence[Table]) -> list[Json]:
    """Each table with its rows, as `lethe study numbers --json` prints them."""
    documents = []
    for table in tables:
        rows = [row.as_json() for row in table.rows]
        documents.append({"title": table.title, "rows": rows})
    return documents


def page(tables: Sequence[Table]) -> str:
    """Return docs/numbers.md."""
    parts = [
        "# Numbers by name",
        "`lethe study numbers --write docs/numbers.md` writes this page from "
        "`lethe/results/quantities/vocabulary.csv`; the command needs: a clone. The names are those of "
        "JSON, of `lethe.load_run(...).metrics`, of DVC and of MLflow. SPLIT stands for a split of the "
        "dataset, NAME for an attack, an audit or a method, K for a number of answers, X for a score. An "
        "estimate has no guarantee. An interval or a bound holds at its own level, which stands beside it "
        "([guarantees](guarantees.md)). A row without a direction has no better end. "
        "Access says what of a model the number needs: its answers only, log-probabilities of texts, or its "
        "weights or training.",
    ]
    for table in tables:
        rows = []
        for row in table.rows:
            names = ", ".join(f"`{name}`" for name in row.names)
            rows.append([names, row.number, row.paper, row.direction, row.what, row.access])
        lines = [line.rstrip() for line in markdown.table(HEAD, rows)]
        parts.append(f"## {table.title}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
