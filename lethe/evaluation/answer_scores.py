"""The scores of a model's sampled answers, and whether a scorer gives only 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lethe.evaluation.run import Model


def scored(model: Model, split: str, scorer: str, without: Sequence[str] = ()) -> list[np.ndarray]:
    """Scores of the sampled answers: one array per question, in sampling order.

    The list is empty where the scorer judged no answer, or where the questions differ in n. A pooled mean would then
    weight the questions unequally, and an n that depends on the answers allows no interval for a fixed n.

    Parameters
    ----------
    model
        The model with its answers.
    split
        The split of the questions.
    scorer
        The column of scores; NaN where an answer was not judged.
    without
        Ids of questions that are left out.
    """
    table = model.answers.get(split)
    if table is None or scorer not in table:
        return []
    # The texts take up most of the table and are not needed here.
    sampled = table.loc[(table["sample"] >= 0) & ~table["prompt_id"].isin(list(without)), ["prompt_id", scorer]]
    if sampled[scorer].isna().all():
        return []
    groups = [group.to_numpy(dtype=np.float64) for _, group in sampled.groupby("prompt_id", sort=False)[scorer]]
    return groups if len({len(group) for group in groups}) == 1 and len(groups[0]) > 1 else []


def judges(scorer: str | None, models: list[Model]) -> bool:
    """Whether a scorer judged the forget answers of at least one model, and gave only 0 and 1 to those of every model."""
    groups = [group for model in models for group in scored(model, "forget", scorer)] if scorer else []
    return bool(groups) and all(np.isin(group[~np.isnan(group)], (0.0, 1.0)).all() for group in groups)


def unjudged(model: Model) -> list[str]:
    """The forget questions that the 0/1 scorer cannot judge, because they have no keywords."""
    if not any(row.m_bin is not None for row in model.questions):
        return []  # there is no 0/1 scorer, or all questions stopped early
    return [row.prompt_id for row in model.questions if row.m_bin is None]
