"""The scores of a model's sampled answers, and whether a scorer gives only 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lethe.evaluation.answer_tables import answer_columns, answer_parts
from lethe.io.artifacts import CUT_OFF

if TYPE_CHECKING:
    from lethe.evaluation.run import Model


def scored(
    model: Model, split: str, scorer: str, without: Sequence[str] = (), cut_off: bool = False
) -> list[np.ndarray]:
    """Scores of the sampled answers: one array per question, in sampling order.

    The list is empty where the scorer judged no answer, or where the questions differ in n. A pooled mean would then
    weight the questions unequally, and an n that depends on the answers allows no interval for a fixed n.
    """
    if scorer not in answer_columns(model.answers, split):
        return []
    groups: list[np.ndarray] = []
    for part in answer_parts(model.answers, split, [scorer, *(["finish_reason"] if cut_off else [])]):
        sampled = part.loc[(part["sample"] >= 0) & ~part["prompt_id"].isin(list(without))]
        if cut_off:
            kept = sampled[scorer].where(sampled["finish_reason"] != CUT_OFF)
            sampled = sampled.assign(**{scorer: kept})
        own = sampled.groupby("prompt_id", sort=False)[scorer]
        groups += [group.to_numpy(dtype=np.float64) for _, group in own]
    if all(np.isnan(group).all() for group in groups):
        return []
    return groups if len({len(group) for group in groups}) == 1 else []


def enough(groups: Sequence[np.ndarray]) -> bool:
    """Whether an interval of a mean exists: two draws of each question, and four in all (`lethe.statistics.comparison`)."""
    return bool(groups) and len(groups[0]) >= 2 and len(groups) * len(groups[0]) >= 4


def judges(scorer: str | None, models: list[Model]) -> bool:
    """Whether a scorer judged the forget answers of at least one model, and gave only 0 and 1 to those of every model."""
    judged = False
    if scorer is None:
        return False
    for model in models:  # the scores of one model in memory at a time
        for group in scored(model, "forget", scorer):
            if not np.isin(group[~np.isnan(group)], (0.0, 1.0)).all():
                return False
            judged = True
    return judged


def unjudged(model: Model) -> list[str]:
    """The forget questions that the 0/1 scorer cannot judge, because they have no keywords."""
    if not any(row.value("m_bin") is not None for row in model.questions):
        return []  # there is no 0/1 scorer, or all questions stopped early
    return [row.prompt_id for row in model.questions if row.value("m_bin") is None]
