"""The base of all results of the public functions: a table, sentences, and both as HTML for a notebook."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from lethe.errors import plural

if TYPE_CHECKING:
    import pandas as pd

Place: TypeAlias = "str | os.PathLike[str]"
SHOWN = 20  # rows of a table in a notebook; `to_frame` has all rows


class Result(ABC):
    """A table with sentences that explain its numbers."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a table."""

    @abstractmethod
    def sentences(self) -> list[str]:
        """Return the meaning and the guarantees of the numbers in sentences."""

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {' '.join(self.sentences())}>"

    def _repr_html_(self) -> str:
        table = self.to_frame()
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences())
        more = f"<p>{plural(len(table) - SHOWN, 'more row')}: see to_frame().</p>" if len(table) > SHOWN else ""
        # pandas escapes the content of the cells: a model's answer is never markup.
        return f"<div>{said}{table.head(SHOWN).to_html(float_format='{:.4g}'.format, escape=True)}{more}</div>"
