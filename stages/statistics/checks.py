"""The legal ranges of what the statistics take, each refused with a sentence."""

from __future__ import annotations

import numpy as np

from stages.errors import BadValue


def check_alpha(alpha: float) -> None:
    """The one-sided bounds are proven for alpha up to one half."""
    if not 0 < alpha <= 0.5:
        raise BadValue("alpha", alpha, "a number above 0 and up to 0.5")


def check_count(name: str, value: int) -> None:
    if value < 1:
        raise BadValue(name, value, "a whole number from 1")


def check_scores(scores: np.ndarray) -> np.ndarray:
    """Scores as float64 of shape (prompts, n), every one in [0, 1]; a vector is one prompt."""
    scores = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    if scores.ndim != 2 or not scores.shape[1]:
        raise BadValue("scores", f"shape {scores.shape}", "prompts x n with at least one score a prompt")
    low, high = scores.min(initial=0.0), scores.max(initial=0.0)
    if np.isnan(low):
        raise BadValue("scores", "NaN", "numbers in [0, 1]", "Decide how missing scores count (--missing).")
    if low < 0 or high > 1:
        raise BadValue("scores", low if low < 0 else high, "numbers in [0, 1]")
    return scores
