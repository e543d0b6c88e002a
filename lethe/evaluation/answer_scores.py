"""The scores of a model's sampled answers, and whether a scorer judged them by 0 and 1 alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lethe.evaluation.run import Model


def scored(model: Model, split: str, scorer: str, without: Sequence[str] = ()) -> list[np.ndarray]:
    """Scores of the sampled answers, an array a question in drawing order, but for the questions ``without``.

    Empty where the scorer says nothing, or where the questions have no common n: a pooled mean would weigh them
    unequally, and a number of answers chosen by looking at them allows no interval for a fixed n.
    """
    table = model.answers.get(split)
    if table is None or scorer not in table:
        return []
    # The texts are most of the table, and nobody asks for them here.
    sampled = table.loc[(table["sample"] >= 0) & ~table["prompt_id"].isin(list(without)), ["prompt_id", scorer]]
    if sampled[scorer].isna().all():
        return []
    groups = [group.to_numpy(dtype=np.float64) for _, group in sampled.groupby("prompt_id", sort=False)[scorer]]
    return groups if len({len(group) for group in groups}) == 1 and len(groups[0]) > 1 else []


def judges(scorer: str | None, models: list[Model]) -> bool:
    """Whether a scorer gave 0 or 1 to forget answers of some model, and nothing else to any."""
    groups = [group for model in models for group in scored(model, "forget", scorer)] if scorer else []
    return bool(groups) and all(np.isin(group[~np.isnan(group)], (0.0, 1.0)).all() for group in groups)


def unjudged(model: Model) -> list[str]:
    """The forget questions of which the 0/1 scorer can judge no answer, as they have no keywords."""
    if not any(row.get("m_bin") is not None for row in model.questions):
        return []  # none was asked, or all stopped early
    return [row["prompt_id"] for row in model.questions if row.get("m_bin") is None]
