"""What the rows of a table of answers state of their draws, for every reader of such a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lethe.io.column_names import OF_TEXTS, meant
from lethe.io.copies import TEXTS, judged_twice, repeated_texts
from lethe.io.facts import (
    CACHED,
    REFUSED_BECAUSE,
    STOPPED,
    Facts,
    cached_rows,
    mixed_rows,
    reasons_in,
    tells_apart,
)
from lethe.io.logs._settings import (
    RequestSettings,
    holds_settings,
    laws_among,
    setting_of,
    with_draws,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def stating(header: Iterable[str], name: str, score: str) -> list[str]:
    """The columns of a table that `facts_of_rows` and `says_stopped` read, beside that of the questions and `sample`."""
    found = []
    for column in header:
        states_settings = holds_settings(column) or setting_of(column) is not None
        states_draws = meant(column, CACHED) is not None or column in (STOPPED, REFUSED_BECAUSE)
        is_telling = tells_apart(column) and column not in (name, score)
        if states_settings or states_draws or is_telling:
            found.append(column)
    return found


def column_of_texts(header: Iterable[str], name: str, score: str) -> str | None:
    """The first column of answers' texts that is neither that of the questions nor that of the scores."""
    for column in header:
        if column not in (name, score) and meant(str(column), TEXTS, OF_TEXTS):
            return column
    return None


def facts_of_rows(
    table: pd.DataFrame, name: str, score: str = "", times: np.ndarray | None = None
) -> Facts:
    """The facts that the rows of drawn answers state: greedy decoding, a cache, several models, a file without a claim.

    ``name`` is the column of the questions and ``score`` that of the scores, neither of which names a model. Each row counts
    so many ``times``, (rows,), by default once.
    """
    table = with_draws(table)
    settings = RequestSettings()
    settings.add_rows(table, times)
    deterministic = None
    if settings.greedy_by:
        deterministic = f"The table states greedy decoding ({settings.greedy_by})"
    repeated = cached_rows(table, times)
    answer = column_of_texts(table.columns, name, score)
    if repeated is None and answer is not None:
        repeated = repeated_texts(table, name, answer, settings.may_repeat)
    laws = laws_among(table)
    refused = [*reasons_in(table), *(f"{sentence}." for sentence in settings.chosen)]
    judged = judged_twice(table, name, filter(None, [answer]), score)
    if judged is not None:
        problem, remedy = judged
        refused.append(f"{problem[:1].upper()}{problem[1:]}. {remedy}")
    return Facts(
        deterministic=deterministic,
        repeated=repeated,
        mixed=mixed_rows(table, name, score, laws),
        refused=tuple(refused),
        sampling=settings.sampling,
    )
