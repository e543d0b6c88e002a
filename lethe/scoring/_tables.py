"""Scores of a table of generations, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.evaluating import ScorerParams
from lethe.errors import BadInput
from lethe.registry import JUDGES
from lethe.scoring import Question, Scorer, open_scorer

if TYPE_CHECKING:
    import pandas as pd

    from lethe.io.artifacts import Reference, References, Row


def score_answers(
    generations: pd.DataFrame,
    items: Mapping[str, Row],
    scorers: Sequence[str],
    params: Mapping[str, ScorerParams] | None = None,
    kept: Path | None = None,
    references: References | None = None,
) -> pd.DataFrame:
    """``prompt_id, sample`` and one float64 column per scorer, rows as in ``generations``; NaN is missing.

    ``items`` maps a prompt's id to its row of the dataset, ``params`` a scorer's name to its parameters. A judge keeps its
    verdicts below ``kept`` and may fill further columns, whose names have endings. ``references`` are the answers that
    single productions ask for. A generation of an unknown prompt raises `BadInput`, because it has no reference.
    """
    (table,) = scored_parts(lambda: [generations], items, scorers, params, kept, references)
    return table


def scored_parts(
    parts: Callable[[], Iterable[pd.DataFrame]],
    items: Mapping[str, Row],
    scorers: Sequence[str],
    params: Mapping[str, ScorerParams] | None = None,
    kept: Path | None = None,
    references: References | None = None,
) -> Iterator[pd.DataFrame]:
    """The same for a table of generations in parts, of which one is in memory at a time.

    ``parts`` begins the table anew at each call: every judge reads it once by itself, because two judges need not fit into
    memory together, and then the text scorers read it together. Of a judge, the numbers of all answers are in memory.
    """
    params_of = params or {}
    judged: dict[str, list[dict[str, np.ndarray]]] = {}
    for name in scorers:
        if name in JUDGES:
            judge = open_scorer(name, params_of.get(name), kept)
            judged[name] = [_columns(part, items, name, judge, references) for part in parts()]
            del judge
    opened = {name: open_scorer(name, params_of.get(name)) for name in scorers if name not in judged}
    for number, part in enumerate(parts()):
        columns: dict[str, np.ndarray] = {}
        for name in scorers:
            if name in judged:
                columns |= judged[name][number]
            else:
                columns |= _columns(part, items, name, opened[name], references)
        yield part[["prompt_id", "sample"]].reset_index(drop=True).assign(**columns)


def _columns(
    generations: pd.DataFrame,
    items: Mapping[str, Row],
    name: str,
    opened: Scorer,
    references: References | None,
) -> dict[str, np.ndarray]:
    """The columns of one scorer."""
    places, questions = asked_of(generations, items, references)
    values = np.full((len(generations), len(opened.endings)), np.nan)
    for rows, scored in zip(places, opened.columns(questions), strict=True):
        values[rows] = scored
    return {name + ending: column for ending, column in zip(opened.endings, values.T, strict=True)}


def asked_of(
    generations: pd.DataFrame, items: Mapping[str, Row], references: References | None = None
) -> tuple[list[np.ndarray], list[Question]]:
    """The row numbers and the answers of each prompt of a table, and what they are scored against.

    The answers of a production with a reference of its own are a question by themselves. An unknown prompt raises
    `BadInput`.
    """
    texts, places, questions = generations["text"].to_numpy(), [], []
    rows_of = generations.reset_index(drop=True).groupby("prompt_id", sort=False).indices
    for prompt_id, rows in rows_of.items():
        if prompt_id not in items:
            raise BadInput(
                f"Generations of prompt {prompt_id!r}: the dataset has no such id. Run `dvc repro` again."
            )
        for own, item in _by_reference(generations, rows, items[prompt_id], (references or {}).get(prompt_id, {})):
            places.append(own)
            questions.append(Question(texts[own], item))
    return places, questions


def _by_reference(
    generations: pd.DataFrame, rows: np.ndarray, item: Row, references: Mapping[str, Reference]
) -> Iterator[tuple[np.ndarray, Row]]:
    """The row numbers of one prompt by what they are scored against: the item, and one part per other reference."""
    if not references or "production" not in generations:
        yield rows, item
        return
    asked = [references.get(name) for name in generations["production"].to_numpy()[rows]]
    for reference in dict.fromkeys(asked):
        own = rows[np.array([one == reference for one in asked])]
        yield own, reference.of(item) if reference else item
