"""What the rows of a table of answers state of their draws, for every reader of such a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lethe.io.answer_ends import missing_kind
from lethe.io.facts import MODELS, Facts, cached_rows, reasons_in, several_models
from lethe.io.logs._settings import Settings

if TYPE_CHECKING:
    import pandas as pd

ENDS_COLUMN = "finish_reason"


def facts_of_rows(table: pd.DataFrame, name: str, score: str = "") -> Facts:
    """The facts that the rows of drawn answers state: greedy decoding, a cache, several models, a file without a claim.

    ``name`` is the column of the questions and ``score`` that of the scores, neither of which names a model.
    """
    settings = Settings()
    settings.add_rows(table)
    deterministic = None
    if settings.greedy_by:
        deterministic = f"The table states greedy decoding ({settings.greedy_by})"
    mixed = None
    for column in MODELS:
        if column not in (name, score) and column in table:
            mixed = _mixed(table, name, column) or mixed
    return Facts(
        deterministic=deterministic,
        repeated=cached_rows(table),
        mixed=mixed,
        refused=reasons_in(table),
    )


def _mixed(table: pd.DataFrame, name: str, column: str) -> str | None:
    """Why answers to some question are those of several models of a column, None where they are of one each."""
    models_of = table.groupby(name, sort=False)[column].unique()
    for prompt, models in models_of.items():
        present = [model for model in models if model == model]
        if len(present) > 1:
            return several_models(prompt, present)
    return None


def without_end(table: pd.DataFrame) -> np.ndarray:
    """Which rows of a table, (rows,), are of answers that no model ended, by their column `finish_reason`."""
    return np.array([kind is not None for kind in missing_kinds(table)], dtype=bool)


def missing_kinds(table: pd.DataFrame) -> list[str | None]:
    """Why the answer of each row is missing by its column `finish_reason`; None where nothing says so."""
    if ENDS_COLUMN not in table:
        return [None] * len(table)
    kinds = {stated: missing_kind(stated) for stated in table[ENDS_COLUMN].unique()}
    return [kinds[stated] for stated in table[ENDS_COLUMN]]


def copies(table: pd.DataFrame, name: str) -> np.ndarray:
    """Which rows of a table, (rows,), repeat the question and the `sample` of an earlier row."""
    if "sample" not in table:
        return np.zeros(len(table), dtype=bool)
    is_copy: np.ndarray = (table.duplicated([name, "sample"]) & table["sample"].notna()).to_numpy()
    return is_copy
