"""The scores of a table of generations, a column a scorer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.measuring import ScorerParams
from lethe.errors import BadInput
from lethe.io.artifacts import Reference, References, Row
from lethe.registry import JUDGES
from lethe.scoring.scorer import Scorer, open_scorer
from lethe.scoring.verdicts import AnsweredRow

if TYPE_CHECKING:
    import pandas as pd


def score_answers(
    generations: pd.DataFrame,
    items: Mapping[str, Row],
    scorers: Sequence[str],
    params: Mapping[str, ScorerParams] | None = None,
    folder: Path | None = None,
    references: References | None = None,
) -> pd.DataFrame:
    """``prompt_id, sample`` and one float64 column per scorer, rows as in ``generations``; NaN is missing. A judge keeps its
    verdicts below ``folder`` and may fill further columns, whose names have endings. ``references`` are the answers that
    single productions ask for. A generation of an unknown prompt raises `BadInput`."""
    (table,) = scored_parts(
        lambda: [generations],
        items,
        scorers,
        params,
        folder,
        references,
    )
    return table


def scored_parts(
    parts: Callable[[], Iterable[pd.DataFrame]],
    items: Mapping[str, Row],
    scorers: Sequence[str],
    params: Mapping[str, ScorerParams] | None = None,
    folder: Path | None = None,
    references: References | None = None,
) -> Iterator[pd.DataFrame]:
    """The same for a table of generations in parts, of which one is in memory at a time. ``parts`` begins the table anew at
    each call: every judge reads it once by itself, because two judges need not fit into memory together, and then the text
    scorers read it together. Of a judge, the numbers of all answers are in memory."""
    params_of = params or {}
    verdicts: dict[str, list[dict[str, np.ndarray]]] = {}
    text_scorers: dict[str, Scorer] = {}
    for name in scorers:
        if name in JUDGES:
            judge = open_scorer(name, params_of.get(name), folder)
            judge.prepare(_questions(parts(), items, references))
            verdicts[name] = []
            for part in parts():
                verdicts[name].append(_columns(part, items, name, judge, references))
            del judge
        else:
            text_scorers[name] = open_scorer(name, params_of.get(name))
    for number, part in enumerate(parts()):
        columns: dict[str, np.ndarray] = {}
        for name in scorers:
            if name in verdicts:
                columns |= verdicts[name][number]
            else:
                columns |= _columns(part, items, name, text_scorers[name], references)
        keys = part[["prompt_id", "sample"]].reset_index(drop=True)
        yield keys.assign(**columns)


def _questions(
    parts: Iterable[pd.DataFrame],
    items: Mapping[str, Row],
    references: References | None,
) -> Iterator[AnsweredRow]:
    """The questions of a table in parts, read part by part as they are taken."""
    for part in parts:
        yield from asked_of(part, items, references)[1]


def _columns(
    generations: pd.DataFrame,
    items: Mapping[str, Row],
    name: str,
    opened: Scorer,
    references: References | None,
) -> dict[str, np.ndarray]:
    """The columns of one scorer by name, (answers,) each."""
    rows_of_questions, questions = asked_of(generations, items, references)
    values = np.full((len(generations), len(opened.endings)), np.nan)
    for rows, scores in zip(rows_of_questions, opened.columns(questions), strict=True):
        values[rows] = scores
    names = [name + ending for ending in opened.endings]
    return dict(zip(names, values.T, strict=True))


def asked_of(
    generations: pd.DataFrame, items: Mapping[str, Row], references: References | None = None
) -> tuple[list[np.ndarray], list[AnsweredRow]]:
    """The row numbers and answers of each prompt, by what they are scored against; an unknown prompt raises `BadInput`."""
    texts = generations["text"].to_numpy()
    rows_of_questions: list[np.ndarray] = []
    questions: list[AnsweredRow] = []
    in_order = generations.reset_index(drop=True)
    rows_of_prompt = in_order.groupby("prompt_id", sort=False).indices
    for prompt_id, rows in rows_of_prompt.items():
        if prompt_id not in items:
            raise BadInput(
                f"Generations of prompt {prompt_id!r}: the dataset has no such id. Run `dvc repro` again."
            )
        others = (references or {}).get(prompt_id, {})
        for same, item in _by_reference(generations, rows, items[prompt_id], others):
            rows_of_questions.append(same)
            questions.append(AnsweredRow(texts[same], item))
    return rows_of_questions, questions


def _by_reference(
    generations: pd.DataFrame,
    rows: np.ndarray,
    item: Row,
    references: Mapping[str, Reference],
) -> Iterator[tuple[np.ndarray, Row]]:
    """The row numbers of one prompt by what they are scored against: the item, and one part per other reference."""
    if not references or "production" not in generations:
        yield rows, item
        return
    productions = generations["production"].to_numpy()[rows]
    rows_of_reference: dict[Reference | None, list[int]] = {}
    for row, production in zip(rows.tolist(), productions, strict=True):
        rows_of_reference.setdefault(references.get(production), []).append(row)
    for reference, same in rows_of_reference.items():
        asked = reference.of(item) if reference else item
        yield np.array(same), asked
