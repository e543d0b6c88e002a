"""ROUGE-L recall, TOFU's measure of a generated answer: the share of the reference's words found in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stages.scoring import _rouge
from stages.scoring._texts import score_distinct


def score(generations: Sequence[str], item: Mapping) -> np.ndarray:
    """ROUGE-L recall of each generation against ``item["answer"]``; NaN where either is missing."""
    reference = item.get("answer")
    if not _rouge.has_words(reference):
        return np.full(len(generations), np.nan)
    return score_distinct(generations, lambda texts: _rouge.rouge_l(texts, reference).recall)
