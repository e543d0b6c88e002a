"""What the rows of a table of answers state of their draws, for every reader of such a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lethe.io.facts import MODELS, Facts, cached_rows, reasons_in, several_models
from lethe.io.logs._log import chosen
from lethe.io.logs._settings import RequestSettings

if TYPE_CHECKING:
    import pandas as pd


def facts_of_rows(table: pd.DataFrame, name: str, score: str = "") -> Facts:
    """The facts that the rows of drawn answers state: greedy decoding, a cache, several models, a file without a claim.

    ``name`` is the column of the questions and ``score`` that of the scores, neither of which names a model.
    """
    settings = RequestSettings()
    settings.add_rows(table)
    deterministic = None
    if settings.greedy_by:
        deterministic = f"The table states greedy decoding ({settings.greedy_by})"
    mixed = None
    for column in MODELS:
        if column not in (name, score) and column in table:
            mixed = _mixed(table, name, column) or mixed
    selected = [f"{sentence}." for sentence in chosen(settings.sampling)]
    return Facts(
        deterministic=deterministic,
        repeated=cached_rows(table),
        mixed=mixed,
        refused=(*reasons_in(table), *selected),
    )


def _mixed(table: pd.DataFrame, name: str, column: str) -> str | None:
    """Why answers to some question are those of several models of a column, None where they are of one each."""
    models_of = table.groupby(name, sort=False)[column].unique()
    for prompt, models in models_of.items():
        present = [model for model in models if model == model]
        if len(present) > 1:
            return several_models(prompt, present)
    return None


def copies(table: pd.DataFrame, name: str) -> np.ndarray:
    """Which rows of a table, (rows,), repeat the question and the `sample` of an earlier row."""
    if "sample" not in table:
        return np.zeros(len(table), dtype=bool)
    is_copy: np.ndarray = (table.duplicated([name, "sample"]) & table["sample"].notna()).to_numpy()
    return is_copy
