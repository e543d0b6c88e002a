"""docs/papers.md: what of the four papers holds here, a row per table, figure, theorem and claim.

The rows are in papers.yaml. A row with an outcome file has a rule, and its word is computed from both:
nobody writes it. A rule is a list of comparisons of numbers of the outcome. A number may have two ends;
a comparison holds, or is contradicted, where that is so at all values between the ends.
"""

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal, get_args

from lethe.audits.unlearning_game.result import kendall
from lethe.errors import BadFile
from lethe.io.files import Json
from lethe.io.yaml import read_yaml
from studies import markdown, outcome

ROWS = Path(__file__).with_name("papers.yaml")
Word = Literal["does not hold here", "not decided", "holds", "not run"]
WORDS: tuple[Word, ...] = get_args(Word)  # failures first
OPERATORS = {"<=": operator.le, ">=": operator.ge}
ENDS = (("smallest", "largest"), ("min", "max"), ("ci_low", "ci_high"))
VALUES = ("mean", "quality")  # the keys of an estimate beside its ends
HEAD = ("what", "claim", "paper", "here", "scale", "word", "command")


@dataclass(frozen=True)
class Number:
    """A value of an outcome with the ends of its range or interval; both are the value where it has none."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        shown = _shown(self.value)
        if self.low == self.high:
            return shown
        return f"{shown} ({_shown(self.low)} to {_shown(self.high)})"


@dataclass(frozen=True)
class Row:
    """One item of a paper. ``here`` are our numbers; ``source`` names the outcome file or the command to run."""

    item: str
    claim: str
    paper: str
    here: str
    scale: str
    word: Word
    source: str

    def as_json(self) -> dict[str, Json]:
        return dict(vars(self))


@dataclass(frozen=True)
class Table:
    """The rows of one paper, failures first."""

    title: str
    rows: list[Row]


def read(rows: Path = ROWS, outcomes: Path = outcome.FOLDER) -> list[Table]:
    """Return the table of each paper; `BadFile` where a row claims something without an outcome."""
    tables = []
    for paper in read_yaml(rows)["papers"]:  # type: ignore[attr-defined]
        of_paper = [_row(entry, rows, outcomes) for entry in paper["rows"]]
        of_paper.sort(key=lambda row: WORDS.index(row.word))
        tables.append(Table(paper["title"], of_paper))
    return tables


def as_json(tables: Sequence[Table]) -> list[Json]:
    """Each table with its rows, as `lethe study papers --json` prints them."""
    documents = []
    for table in tables:
        rows = [row.as_json() for row in table.rows]
        documents.append({"title": table.title, "rows": rows})
    return documents


def _row(entry: Mapping[str, Json], rows: Path, outcomes: Path) -> Row:
    """An entry of papers.yaml with the word that its outcome gives it.

    Raises `BadFile` where numbers and outcome do not belong together.
    """
    item = entry["item"]
    common = {"item": item, "claim": entry["claim"], "paper": str(entry.get("paper", ""))}
    if "outcome" not in entry:
        if "rule" in entry or "ours" in entry:
            raise BadFile(rows, f"{item} has numbers and no outcome", "Name its file in outcomes/.")
        if "needs" not in entry:
            raise BadFile(rows, f"{item} has no outcome and no needs", "Say what it needs.")
        return _not_run(common, entry)

    name = entry["outcome"]
    path = outcomes / f"{name}.json"
    if not path.is_file() and "needs" in entry:
        return _not_run(common, entry)
    if not path.is_file():
        raise BadFile(rows, f"{item} names an outcome that is not there: {path.name}")
    document = outcome.read(path)
    if not entry.get("rule"):
        remedy = "Write comparisons of its numbers."
        raise BadFile(rows, f"{item} has an outcome and no rule", remedy)
    if "{" not in entry["ours"]:
        raise BadFile(rows, f"{item} shows no number of its outcome", "Name one in braces.")

    compared = [_compared(comparison, document) for comparison in entry["rule"]]
    here = re.sub(r"\{([^{}]+)\}", lambda found: str(number(document, found[1])), entry["ours"])
    link = f"[{name}](../studies/outcomes/{name}.json)"
    return Row(
        **common,
        here=here,
        scale=entry.get("scale", ""),
        word=_word(compared),
        source=f"`{document['command']}`, {document['date']}: {link}",
    )


def _not_run(common: Mapping[str, str], entry: Mapping[str, Json]) -> Row:
    """A row without an outcome, or whose outcome is still to come: then it names its file and rule beforehand."""
    command = entry.get("command", "")
    source = f"`{command}`" if command else ""
    return Row(**common, here="", scale=f"needs {entry['needs']}", word="not run", source=source)


def _word(compared: Sequence[bool | None]) -> Word:
    """The word of a rule from its comparisons: the worst decides."""
    if False in compared:
        return "does not hold here"
    if None in compared:
        return "not decided"
    return "holds"


def _compared(comparison: Sequence[Json], document: Mapping[str, Json]) -> bool | None:
    """Whether [left, operator, right, factor of right] is so at all values; None where only at some."""
    left, sign, right, *factors = comparison
    factor = factors[0] if factors else 1.0
    first = number(document, left)
    second = number(document, right)
    ends = []
    for a in (first.low, first.high):
        for b in (second.low, second.high):
            ends.append(OPERATORS[sign](a, factor * b))
    if len(set(ends)) > 1:
        return None
    return ends[0]


def number(document: Mapping[str, Json], path: Json) -> Number:
    """Return the number at ``path`` of an outcome's values.

    A path is keys with slashes between; of a list, ``key=value,key=value`` takes the object that has them.
    ``PATH|2000`` is a share of 2,000 runs, and gets its Clopper-Pearson interval. ``PATH#order`` is the smallest
    Kendall tau between two columns of a table: 1 where all have the same order. A number is itself.
    """
    if not isinstance(path, str):
        return Number(path, path, path)
    table, _, asked = path.partition("#")
    keys, _, runs = table.partition("|")
    value: Json = document["values"]
    for key in keys.split("/"):
        value = _item(value, key, document, path)
    if asked == "order":
        agreement = min(kendall(first, second) for first, second in combinations(value.values(), 2))
        return Number(agreement, agreement, agreement)
    if runs:
        n = int(runs)
        ends = outcome.share(round(value * n), n)
        return Number(value, ends["smallest"], ends["largest"])
    if not isinstance(value, Mapping):
        return Number(value, value, value)

    middle = next((value[key] for key in VALUES if key in value), None)
    if middle is None:
        raise BadFile(f"{document['name']}.json", f"has no number at {path}", "Correct the row.")
    if "sd" in value:
        return Number(middle, middle - value["sd"], middle + value["sd"])
    for low, high in ENDS:
        if value.get(low) is not None:
            return Number(middle, value[low], value[high])
    return Number(middle, middle, middle)


def _item(value: Json, key: str, document: Mapping[str, Json], path: str) -> Json:
    """What ``key`` takes of a list or an object. Raises `BadFile` where nothing of the outcome answers to it."""
    if isinstance(value, list):
        wanted = dict(re.findall(r"(\w+)=(.+?)(?=,\w+=|$)", key))
        for item in value:
            if all(f"{item[name]}" == text for name, text in wanted.items()):
                return item
    elif isinstance(value, Mapping) and key in value:
        return value[key]
    raise BadFile(f"{document['name']}.json", f"has no {path}", "Correct the row in papers.yaml.")


def page(tables: Sequence[Table]) -> str:
    """Return docs/papers.md."""
    words: list[Word] = []
    for table in tables:
        words += [row.word for row in table.rows]
    counts = [f"{words.count(word)} *{word}*" for word in WORDS]
    parts = [
        "# What of the papers holds here",
        f"{len(words)} tables, figures, theorems and claims of four papers: {', '.join(counts)}. Failures stand first in "
        "each table, and what was not run last.",
        "`lethe study papers --write docs/papers.md` writes this page from the rows in `studies/papers.yaml` and the "
        "outcome files in `studies/outcomes`. An outcome file names its command, commit, seeds and date, and is "
        "committed whatever it says. The word of a row is computed from the outcome and the row's rule: *holds* if "
        "each comparison is true at all values between the ends in brackets, *does not hold here* if one is false "
        "at all of them, else *not decided*. Ends in brackets are the smallest and the largest of the runs, the mean "
        "plus and minus a standard deviation, or a 95% interval of a share of runs. *Here* is about the scale of the "
        "row, never about the paper's. Every command of this page needs: a clone, and minutes to days.",
    ]
    for table in tables:
        rows = []
        for row in table.rows:
            rows.append([row.item, row.claim, row.paper, row.here, row.scale, row.word, row.source])
        lines = [f"## {table.title}", "", *markdown.table(HEAD, rows)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _shown(value: float) -> str:
    """A number in three digits, or in two where it is written with an exponent."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:.2g}"
