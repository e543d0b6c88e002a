"""A table for a paper: chosen numbers, a model a row, as CSV, LaTeX (booktabs) or Markdown.

A column holds estimates or ends, never both. LaTeX and Markdown round ends outward and carry their guarantee as caption; an
end with another guarantee than its column gets a footnote. CSV keeps every digit, with the guarantees in a column.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lethe.errors import BadValue
from lethe.results import quantities
from lethe.results.quantities import SAID, Access
from lethe.results.table import Numbers, Value
from lethe.statistics.bound import Bound, rounded
from lethe.text import yes_or_no

MARKS = "abcdefghijklmnopqrstuvwxyz"
NOTHING = "-"
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "α": r"$\alpha$",
    "∞": r"$\infty$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "µ": r"$\mu$",
}
LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}


@dataclass(frozen=True)
class Size:
    """A size of LaTeX by its command: the mean width of a character and the space beside a column, in points."""

    name: str
    width: float
    space: int


# The widest table that fits in the text of the class article (345 pt) takes the first.
SIZES = (
    Size("normalsize", 5.0, 6),
    Size("small", 4.7, 4),
    Size("footnotesize", 4.25, 3),
    Size("scriptsize", 3.9, 3),
)
TEXT_WIDTH = 345


@dataclass(frozen=True)
class PaperTable:
    """The numbers of models by the exported names of ``columns``.

    ``digits`` are the decimals of a cell for people. ``refused`` has the reasons for which a model has no ends, and
    ``differing`` names what two models do not share.
    """

    numbers_of_model: Mapping[str, Numbers]
    columns: tuple[str, ...]
    digits: int
    refused: Mapping[str, Sequence[str]]
    differing: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        numbers_of_model: Mapping[str, Numbers],
        columns: Sequence[str],
        digits: int,
        refused: Mapping[str, Sequence[str]],
    ) -> PaperTable:
        """The table of these columns, or of the headlines of all models where none is named.

        Raises
        ------
        BadValue
            For a name that no model of the table has.
        """
        known: dict[str, None] = {}
        headlines: dict[str, None] = {}
        for numbers in numbers_of_model.values():
            known |= dict.fromkeys(numbers.columns)
            headlines |= dict.fromkeys(quantities.headline(numbers.values))
        for name in columns:
            if name not in known:
                legal = f"a number of these models: {', '.join(known)}"
                raise BadValue("column", name, legal)
        return cls(numbers_of_model, tuple(columns or headlines), digits, refused)

    def value(self, model: str, column: str) -> Value:
        """The number with all its digits; None where the model has none."""
        return self.numbers_of_model[model].columns.get(column)

    def bound(self, model: str, column: str) -> Bound | None:
        """The guarantee of a number that is an end; None for an estimate."""
        numbers = self.numbers_of_model[model]
        bound = numbers.bounds.get(column)
        if bound is not None:
            return bound
        point = numbers.points.get(column)
        if point is None:
            return None
        _, bound_at_point = point
        return bound_at_point

    @cached_property
    def guarantees(self) -> dict[str, str]:
        """The guarantee of each column of ends: that of the first model that has one."""
        guarantees = {}
        for column in self.columns:
            bound = self._first_bound(column)
            if bound is not None:
                guarantees[column] = guarantee_of(bound)
        return guarantees

    def _first_bound(self, column: str) -> Bound | None:
        """The end of the first model that has one in this column."""
        for model in self.numbers_of_model:
            bound = self.bound(model, column)
            if bound is not None:
                return bound
        return None

    @cached_property
    def footnotes(self) -> dict[str, str]:
        """The marks of guarantees that are not those of their column, by the guarantee."""
        marks: dict[str, str] = {}
        for model in self.numbers_of_model:
            for column in self.columns:
                bound = self.bound(model, column)
                if bound is None or guarantee_of(bound) == self.guarantees[column]:
                    continue
                guarantee = guarantee_of(bound)
                marks.setdefault(guarantee, _mark(len(marks)))
        return marks

    def mark(self, model: str, column: str) -> str:
        """The mark of the footnote of a number; empty where it has none."""
        bound = self.bound(model, column)
        if bound is None:
            return ""
        return self.footnotes.get(guarantee_of(bound), "")

    def cell(self, model: str, column: str) -> str:
        """A number for people: an end rounded outward, an estimate to nearest."""
        bound = self.bound(model, column)
        if bound is not None:
            return bound.number(self.digits)
        value = self.value(model, column)
        if value is None:
            return NOTHING
        if isinstance(value, bool):
            return yes_or_no(value)
        if isinstance(value, float):
            return f"{rounded(value, self.digits):,}"
        if isinstance(value, int):
            return f"{value:,}"
        return value

    def head(self, column: str) -> str:
        """The name of a column, with a sign where it holds ends."""
        bound = self._first_bound(column)
        if bound is None:
            return column
        if bound.side == "upper":
            return f"{column} ≤"
        return f"{column} ≥"

    def heads(self) -> list[str]:
        """The first row: the model, and the head of each column."""
        heads = ["model"]
        for column in self.columns:
            heads.append(self.head(column))
        return heads

    def notes(self) -> list[str]:
        """The caption: the guarantee of each column of ends, what has none, and why a model has no ends."""
        columns_of_guarantee: dict[str, list[str]] = {}
        for column, guarantee in self.guarantees.items():
            columns_of_guarantee.setdefault(guarantee, []).append(column)
        notes = []
        for guarantee, columns in columns_of_guarantee.items():
            notes.append(f"{', '.join(columns)}: {guarantee}.")

        estimates = [column for column in self.columns if column not in self.guarantees]
        if estimates:
            notes.append(f"{', '.join(estimates)}: estimates without a bound.")
        if self.guarantees:
            notes.append("Ends are rounded outward.")
        notes.append(f"Access to the models: {self.access()}.")
        for model, reasons in self.refused.items():
            notes.append(f"{model} has no ends: {' '.join(reasons)}")
        if self.differing:
            notes.append(
                f"The rows differ in {', '.join(self.differing)}: numbers of two such rows are not to be compared."
            )
        return notes

    def access(self) -> str:
        """What the columns need of a model, with the columns of each level where there are several."""
        columns_of_access: dict[str, list[str]] = {}
        for column in self.columns:
            for model in self.numbers_of_model:
                access = self.access_of(model, column)
                if access is not None:
                    columns_of_access.setdefault(SAID[access], []).append(column)
                    break
        if len(columns_of_access) == 1:
            return next(iter(columns_of_access))
        parts = []
        for said, names in columns_of_access.items():
            parts.append(f"{said} ({', '.join(names)})")
        return "; ".join(parts)

    def access_of(self, model: str, column: str) -> Access | None:
        """What a number of a model needs of it; None where the model has no such number."""
        numbers = self.numbers_of_model[model]
        if column not in numbers.columns:
            return None
        return numbers.kind_of(column).access

    def _size(self, heads: Sequence[str]) -> Size:
        """The largest of `SIZES` in which the table fits in the text; the smallest where it fits in none."""
        characters = max(map(len, [heads[0], *self.numbers_of_model]))
        for column, head in zip(self.columns, heads[1:], strict=True):
            cells = [self.cell(model, column) for model in self.numbers_of_model]
            characters += max(map(len, [head, *cells]))

        for size in SIZES:
            space_between = 2 * len(heads) * size.space
            if characters * size.width + space_between <= TEXT_WIDTH:
                return size
        return SIZES[-1]

    def csv(self) -> str:
        """Full numbers; the last column has the guarantees of the row's ends."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["model", *self.columns, "guarantee"])
        for model in self.numbers_of_model:
            guarantees = []
            for column in self.columns:
                bound = self.bound(model, column)
                if bound is not None:
                    guarantees.append(f"{column}: {guarantee_of(bound)}")
            cells = [self.value(model, column) for column in self.columns]
            writer.writerow([model, *cells, "; ".join(guarantees)])
        return text.getvalue()

    def markdown(self) -> str:
        """A table of GitHub's Markdown, the caption and the footnotes below it."""
        lines = [markdown_row(self.heads())]
        lines.append("|".join(["---", *["---:"] * len(self.columns)]))
        for model in self.numbers_of_model:
            cells = [model]
            for column in self.columns:
                cell = self.cell(model, column)
                mark = self.mark(model, column)
                if mark:
                    cell += f"<sup>{mark}</sup>"
                cells.append(cell)
            lines.append(markdown_row(cells))
        lines += ["", *self.notes()]
        for guarantee, mark in self.footnotes.items():
            lines.append(f"<sup>{mark}</sup> {guarantee}.")
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """A table environment for the package booktabs, with threeparttable's notes below it where there are footnotes."""
        heads = self.heads()
        caption = latex_text(" ".join(self.notes()))
        size = self._size(heads)

        lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", r"\medskip"]
        lines += [rf"\{size.name}", rf"\setlength{{\tabcolsep}}{{{size.space}pt}}"]
        lines += self._tabular(heads)
        for guarantee, mark in self.footnotes.items():
            lines.append(rf"\par\footnotesize\textsuperscript{{{mark}}} {latex_text(guarantee)}.")
        lines.append(r"\end{table}")
        return "\n".join(lines) + "\n"

    def _tabular(self, heads: Sequence[str]) -> list[str]:
        """The lines of the table itself, a line a model."""
        alignment = "l" + "r" * len(self.columns)
        lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
        lines += [latex_row([latex_text(head) for head in heads]), r"\midrule"]
        for model in self.numbers_of_model:
            cells = [latex_text(model)]
            for column in self.columns:
                cell = latex_text(self.cell(model, column))
                mark = self.mark(model, column)
                if mark:
                    cell += rf"\textsuperscript{{{mark}}}"
                cells.append(cell)
            lines.append(latex_row(cells))
        lines += [r"\bottomrule", r"\end{tabular}"]
        return lines


def guarantee_of(bound: Bound) -> str:
    """Side, scope, level, assumption and method of an end, without its value."""
    method = bound.method
    if bound.n is not None:
        method += f", n = {bound.n:,}"
    return f"{bound.relation} this {bound.guarantee()} ({method})"


def latex_text(text: str) -> str:
    r"""The text with each character that LaTeX reads as a command escaped.

    >>> print(latex_text("m_bin ≤ 5%"))
    m\_bin $\le$ 5\%
    """
    return "".join(LATEX.get(character, character) for character in text)


def _mark(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    first, last = divmod(number, len(MARKS))
    if not first:
        return MARKS[last]
    return MARKS[first - 1] + MARKS[last]


def markdown_row(cells: Sequence[str]) -> str:
    """A row of a Markdown table; a bar inside a cell is escaped."""
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return " | ".join(escaped)


def latex_row(cells: Sequence[str]) -> str:
    """A row of a LaTeX table of cells that are escaped already (`latex_text`)."""
    return f"{' & '.join(cells)} \\\\"
