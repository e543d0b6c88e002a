"""leak@k: the probability that at least one of k answers leaks, estimated from all drawn answers.

Source: the unbiased estimate of pass@k (Chen et al., 2021, equation 1), as in `lethe.statistics.leak_at_k`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lethe.evaluation.measure import ScoreMatrix
from lethe.evaluation.prompt_scores import mean
from lethe.statistics.leak_at_k import leak_at_k
from studies.meta_evaluation.knowledge import Asking, Number, Seen, answers_part


def values(seen: Seen, retrain: Seen | None, asking: Asking) -> Iterator[Number]:
    """Nothing without a scorer that gives 0 or 1, and nothing for a k above the number of answers."""
    if asking.metrics.binary is None:
        return
    matrix = ScoreMatrix({"forget": seen.scores}, "forget", asking.metrics.binary)
    missing = np.isnan(matrix.samples)
    judged = ~missing.all(axis=1)
    ks = [k for k in asking.leak_at if k <= matrix.samples.shape[1]]
    if not judged.any() or not ks:
        return
    counts = np.where(judged, np.nansum(matrix.samples, axis=1), np.nan)
    absent = np.where(judged, missing.sum(axis=1), 0)
    table = leak_at_k(counts, matrix.samples.shape[1], asking.metrics.alpha, ks, absent).estimate
    for place, k in enumerate(ks):
        each = dict(zip(matrix.prompts, map(float, table[:, place]), strict=True))
        value = mean(table[:, place])
        yield Number(f"leak_at_{k}", value, value, (answers_part(asking.n),), each)
