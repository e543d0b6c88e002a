"""Exact match: 1 if the generation equals the answer, ignoring case, Unicode compatibility forms and white space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lethe.scoring.text import is_text, normalise, score_distinct

BINARY = True


def score(generations: Sequence[str], item: Mapping) -> np.ndarray:
    """0 or 1 per generation; NaN if the generation or ``item["answer"]`` is missing."""
    if not is_text(item.get("answer")):
        return np.full(len(generations), np.nan)
    answer = normalise(item["answer"])
    return score_distinct(generations, lambda texts: [normalise(text) == answer for text in texts])
