"""Greedy score, mean and standard deviation of every further scorer of ``score.scorers``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lethe.evaluation.measure import ScoreMatrix
from lethe.evaluation.prompt_scores import mean
from studies.meta_evaluation.knowledge import GREEDY_PART, Asking, Number, Seen, answers_part


def values(seen: Seen, retrain: Seen | None, asking: Asking) -> Iterator[Number]:
    """The scorers ``metrics.leak`` and ``metrics.binary`` are left out: the member `answers` has their numbers.

    The spread counts in the direction of the ED score, as in `answers`: larger where the model knows more.
    """
    taken = {"prompt_id", "sample", asking.metrics.leak, asking.metrics.binary}
    for scorer in [column for column in seen.scores.columns if column not in taken]:
        matrix = ScoreMatrix({"forget": seen.scores}, "forget", scorer)
        each = dict(zip(matrix.prompts, map(float, matrix.greedy), strict=True))
        value = mean(matrix.greedy)
        yield Number(f"{scorer}_greedy", value, value, (GREEDY_PART,), each)
        for n in asking.answers:
            for name, function in (("mean", np.nanmean), ("sd", np.nanstd)):
                found = [
                    float(function(own)) if not np.isnan(own).all() else np.nan for own in matrix.samples[:, :n]
                ]
                value = mean(found)
                own_each = dict(zip(matrix.prompts, found, strict=True))
                yield Number(f"{scorer}_{name}@{n}", value, value, (answers_part(n),), own_each)
