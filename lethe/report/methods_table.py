"""A table for a paper with a method a row: chosen numbers over seeds, as CSV, LaTeX (booktabs) or Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lethe.comparison.over_seeds import LEAKAGE, OverSeeds
from lethe.errors import BadValue
from lethe.io.files import Json
from lethe.measure.trajectories import Trajectories
from lethe.report.paper_table import latex_row, latex_text, markdown_row
from lethe.results import quantities
from lethe.results.quantities import SAID, Access
from lethe.results.table import Result

WORDS = "forgetting, utility: models"
PARTS = ("sd", "lower", "upper")  # the columns of CSV beside the mean of a number


@dataclass(frozen=True)
class MethodsTable:
    """The methods of runs over their seeds, a row each.

    Attributes
    ----------
    found_of_run
        By the folder of a run, its methods.
    columns
        The exported names of the numbers.
    digits
        The decimals of a cell for people.
    along_of_run
        The methods at matched utility, where points along unlearning were measured.
    access
        What the numbers need of a model; None: the caption says nothing of it.
    """

    found_of_run: Mapping[str, OverSeeds]
    columns: tuple[str, ...]
    digits: int
    along_of_run: Mapping[str, Trajectories]
    access: Access | None = None

    @classmethod
    def of(
        cls,
        found_of_run: Mapping[str, OverSeeds],
        columns: Sequence[str],
        digits: int,
        along_of_run: Mapping[str, Trajectories],
    ) -> MethodsTable:
        """The table of these columns, without any of the headlines. Raises `BadValue` for a name that no method has."""
        names: dict[str, None] = {}
        for found in found_of_run.values():
            names |= dict.fromkeys(found.names)
        for name in columns:
            if name not in names:
                raise BadValue("column", name, f"a number over seeds: {', '.join(names)}")

        leakage = [name for name in LEAKAGE if name in names][:1]
        headlines = quantities.headline(dict.fromkeys(names, 1.0))
        return cls(found_of_run, tuple(columns) or (*leakage, *headlines), digits, along_of_run)

    @property
    def heads(self) -> list[str]:
        """The headings of the table for people."""
        return ["method", *self.columns, WORDS]

    def rows(self) -> list[list[str]]:
        """The cells of each method, for people."""
        rows = []
        for run, found in self.found_of_run.items():
            for title in found.titles:
                cells = [found.cell(title, name, self.digits) for name in self.columns]
                rows.append([self._label(run, title), *cells, found.words(title)])
        return rows

    def notes(self) -> list[str]:
        """The caption: what the cells are, what they assume, and what the tests between methods found."""
        notes: dict[str, None] = {}
        for run, found in self.found_of_run.items():
            matched = self.along_of_run[run].sentences() or found.matched_sentences()
            for sentence in [*found.sentences(self.columns), *matched]:
                notes[self._label(run, sentence)] = None
        if self.access is not None:
            notes[f"Access to the models: {SAID[self.access]}."] = None
        return list(notes)

    def markdown(self) -> str:
        """The table with its caption below."""
        lines = [markdown_row(self.heads), "|".join(["---"] * len(self.heads))]
        lines += map(markdown_row, self.rows())
        return "\n".join([*lines, "", *self.notes()]) + "\n"

    def latex(self) -> str:
        """A table environment for the package booktabs."""
        caption = _latex(" ".join(self.notes()))
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", r"\medskip"]
        lines += [r"\scriptsize", rf"\begin{{tabular}}{{l{'r' * len(self.columns)}l}}"]
        lines += [r"\toprule", _latex_row(self.heads), r"\midrule"]
        lines += map(_latex_row, self.rows())
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"

    def csv(self) -> str:
        """Full numbers: of each number the mean, the standard deviation and the ends of the interval."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        heads = ["method", "seeds"]
        for name in self.columns:
            heads += [name, *(f"{name}_{part}" for part in PARTS)]
        writer.writerow([*heads, "words"])
        for run, found in self.found_of_run.items():
            for family in found.record["families"]:
                title = family["title"]
                cells: list[Json] = [self._label(run, title), len(family["seeds"])]
                for name in self.columns:
                    cells += _full(found.rows.get((title, name)))
                writer.writerow([*cells, found.words(title)])
        return text.getvalue()

    def as_json(self) -> dict[str, Json]:
        """What every run says of its methods, by the run's folder."""
        values: dict[str, Json] = {}
        for run, found in self.found_of_run.items():
            values[run] = found.as_json()
            if self.along_of_run[run]:
                along = [method.as_json() for method in self.along_of_run[run].methods]
                values[run]["trajectories"] = along
        return values

    def _label(self, run: str, text: str) -> str:
        """A method or a sentence; of several runs with the run that it is of."""
        return text if len(self.found_of_run) == 1 else f"{run}: {text}"


def _full(row: Result | None) -> list[Json]:
    """Mean, standard deviation and both ends of a row; empty where there is none."""
    if row is None:
        return [None, None, None, None]
    return [row.estimate, row.facts["sd"], row.lower, row.upper]


def _latex(text: str) -> str:
    """A text in the letters of LaTeX."""
    return latex_text(text).replace("±", r"$\pm$").replace("–", "--")


def _latex_row(cells: Sequence[str]) -> str:
    return latex_row([_latex(cell) for cell in cells])
