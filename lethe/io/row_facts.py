"""What the rows of a table of answers state of their draws, for every reader of such a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.facts import (
    CACHED,
    MODELS,
    REFUSED_BECAUSE,
    STOPPED,
    Facts,
    cached_rows,
    reasons_in,
    several_models,
)
from lethe.io.logs._settings import NESTED, RequestSettings, setting_of

if TYPE_CHECKING:
    import pandas as pd


def stating(header: Iterable[str], name: str, score: str) -> list[str]:
    """The columns of a table that `facts_of_rows` and `says_stopped` read, beside that of the questions and `sample`."""
    found = []
    for column in header:
        states_settings = column.lower() in NESTED or setting_of(column) is not None
        states_draws = column.lower() in CACHED or column in (STOPPED, REFUSED_BECAUSE)
        if states_settings or states_draws or (column in MODELS and column not in (name, score)):
            found.append(column)
    return found


def facts_of_rows(
    table: pd.DataFrame, name: str, score: str = "", times: np.ndarray | None = None
) -> Facts:
    """The facts that the rows of drawn answers state: greedy decoding, a cache, several models, a file without a claim.

    ``name`` is the column of the questions and ``score`` that of the scores, neither of which names a model. Each row counts
    so many ``times``, (rows,), by default once.
    """
    settings = RequestSettings()
    settings.add_rows(table, times)
    deterministic = None
    if settings.greedy_by:
        deterministic = f"The table states greedy decoding ({settings.greedy_by})"
    mixed = None
    for column in MODELS:
        if column not in (name, score) and column in table:
            mixed = _mixed(table, name, column) or mixed
    selected = [f"{sentence}." for sentence in settings.chosen]
    return Facts(
        deterministic=deterministic,
        repeated=cached_rows(table, times),
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
