"""The bases of what the public functions return: a table, sentences, and both as HTML for a notebook."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING, TypeAlias

from lethe.errors import plural

if TYPE_CHECKING:
    import pandas as pd

    from lethe.results.table import Result
    from lethe.statistics.bound import Bound

Place: TypeAlias = "str | os.PathLike[str]"
LINE = 200  # characters of a `repr`; `str` has all sentences
SHOWN = 20  # rows of a table in a notebook; `to_frame` has all rows


@dataclass(frozen=True)
class View:
    """A table for people, with the sentences below it; without columns it is text."""

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    notes: Sequence[str] = ()


class TableWithSentences(ABC):
    """A table with sentences that explain its numbers."""

    def views(self) -> list[View]:
        """Return what a terminal shows: by default the whole table."""
        table = self.to_frame()
        rows = [
            [
                name,
                *(
                    self.bound_at(str(name), str(column)) or value
                    for column, value in zip(table, row, strict=True)
                ),
            ]
            for name, row in zip(table.index, table.itertuples(index=False), strict=True)
        ]
        return [View("", [str(table.index.name or ""), *map(str, table.columns)], rows, self.sentences())]

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a table."""

    @abstractmethod
    def sentences(self) -> list[str]:
        """Return the meaning and the guarantees of the numbers in sentences."""

    def bound_at(self, row: str, column: str) -> Bound | None:
        """The bound whose value a cell of `to_frame` holds, by the labels of row and column; None where there is none."""
        return None

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {shorten(' '.join(self.sentences()), LINE, placeholder=' ...')}>"

    def _repr_html_(self) -> str:
        table = self.to_frame()
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences())
        more = f"<p>{plural(len(table) - SHOWN, 'more row')}: see to_frame().</p>" if len(table) > SHOWN else ""
        # pandas escapes the content of the cells: a model's answer is never markup.
        return f"<div>{said}{self._rounded(table.head(SHOWN)).to_html(escape=True)}{more}</div>"

    def _rounded(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table as text: a bound is rounded away from its claim, another number to four digits."""
        shown = table.astype(object)
        for column_place, column in enumerate(table.columns):
            for row_place, row in enumerate(table.index):
                value = table.iat[row_place, column_place]
                if isinstance(value, float):
                    bound = self.bound_at(str(row), str(column))
                    shown.iat[row_place, column_place] = bound.significant() if bound else f"{value:.4g}"
        return shown


class Measurement(TableWithSentences):
    """Numbers with guarantees, which are also rows of the table of results."""

    @abstractmethod
    def rows(self) -> list[Result]:
        """Return the rows of `lethe.results.table`."""

    def to_results(self) -> pd.DataFrame:
        """Return one row per quantity, as in ``data/results``: estimate, both ends with their guarantee, evidence."""
        from lethe.results.table import frame_of

        return frame_of(self.rows())
