"""What the public functions give: results with tables, sentences, rows, and HTML for a notebook."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import shorten
from typing import TYPE_CHECKING

from lethe.errors import plural, visible
from lethe.io.files import Json

if TYPE_CHECKING:
    import pandas as pd

    from lethe.results.table import Result

LINE = 200  # characters of a `repr`; `str` has all sentences
SHOWN = 20  # rows of a table for people; `to_frame` has all rows
CELL = 60  # characters of a model's text in a table for people


@dataclass(frozen=True)
class View:
    """A table for people, with the sentences below it; without columns it is text."""

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    notes: Sequence[str] = ()


def cell(value: object) -> str:
    """A value in a table for people: a bound is rounded outward, a text is escaped and on one line."""
    from lethe.statistics.bound import Bound

    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, Bound):
        return value.significant()
    if isinstance(value, float):
        return f"{value:.4g}"
    return visible(str(value)).replace("\n", "\\n")


def short(text: str, most: int = CELL) -> str:
    """A model's text for a cell of at most ``most`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def frame(
    rows: object, columns: Sequence[str] | None = None, index: Sequence[str] | None = None
) -> pd.DataFrame:
    """A table for notebooks; pandas is imported once there is one."""
    import pandas as pd

    return pd.DataFrame(rows, index, columns)


class TableWithSentences(ABC):
    """A table with sentences that explain its numbers."""

    @abstractmethod
    def views(self) -> list[View]:
        """Return what a terminal and a notebook show."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a table."""

    @abstractmethod
    def sentences(self) -> list[str]:
        """Return the meaning and the guarantees of the numbers in sentences."""

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def __repr__(self) -> str:
        sentences = shorten(" ".join(self.sentences()), LINE, placeholder=" ...")
        return f"<{type(self).__name__}: {sentences}>"

    def _repr_html_(self) -> str:
        blocks = [block for view in self.views() for block in _html_blocks(view)]
        return f"<div>{''.join(blocks)}</div>"


def _html_blocks(view: View) -> list[str]:
    """The title, the first rows and the sentences of a view as HTML."""
    blocks = []
    if view.title:
        blocks.append(f"<p>{escape(view.title)}</p>")
    if view.columns:
        rows = [list(map(cell, row)) for row in view.rows[:SHOWN]]
        # pandas escapes the content of the cells: a model's answer is never markup.
        table = frame(rows, columns=list(view.columns))
        blocks.append(table.to_html(escape=True, index=False))
    notes = list(view.notes)
    more = len(view.rows) - SHOWN
    if more > 0:
        notes.append(f"{plural(more, 'more row')}: see to_frame().")
    blocks += [f"<p>{escape(note)}</p>" for note in notes if note]
    return blocks


class Measurement(TableWithSentences):
    """Numbers with guarantees, which are also rows of the table of results."""

    @abstractmethod
    def rows(self) -> list[Result]:
        """Return the rows of `lethe.results.table`."""

    @abstractmethod
    def as_json(self) -> dict[str, Json]:
        """Return the keys of `--json`: the view of the rows (`lethe.results.views`), with the ``access`` that they need."""
