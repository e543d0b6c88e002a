"""Range checks of the statistics' arguments; each check raises `BadValue`."""

from collections.abc import Callable

import numpy as np

from lethe.errors import BadValue
from lethe.errors import check as check

SMALLEST_ALPHA = 1e-100
BLOCK = 1 << 16  # scores


def check_alpha(alpha: float) -> None:
    """Raise `BadValue` outside [`SMALLEST_ALPHA`, 0.5]: the one-sided bounds are proven only up to one half."""
    check(
        SMALLEST_ALPHA <= alpha <= 0.5, "alpha", alpha, f"a number from {SMALLEST_ALPHA:g} to 0.5"
    )


def check_share(name: str, value: float) -> None:
    check(0 < value < 1, name, value, "a number strictly between 0 and 1")


def check_count(name: str, value: int) -> None:
    check(value >= 1, name, value, "a whole number of at least 1")


def check_scores(scores: np.ndarray, missing: str = "refuse") -> np.ndarray:
    """Return the scores as float64 of shape (prompts, n), each in [0, 1]; a vector is one prompt.

    A missing score is NaN, which is an error unless ``missing`` is "worst".
    """
    check(missing in ("refuse", "worst"), "missing", missing, "refuse or worst")
    scores = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    if scores.ndim != 2 or not scores.shape[1]:
        raise BadValue(
            "scores", f"shape {scores.shape}", "of shape (prompts, n), with a score for each prompt"
        )
    low, high = (
        np.fmin.reduce(scores, axis=None, initial=0.0),
        np.fmax.reduce(scores, axis=None, initial=0.0),
    )
    if low < 0 or high > 1:
        raise BadValue("scores", float(low if low < 0 else high), "numbers in [0, 1]")
    if missing == "refuse" and np.isnan(scores.sum()):
        raise BadValue(
            "scores", "NaN", "numbers in [0, 1]", "Decide how missing scores count (--missing)."
        )
    return scores


def in_blocks(
    function: Callable[[np.ndarray], dict[str, np.ndarray]], scores: np.ndarray
) -> dict[str, np.ndarray]:
    """Apply ``function`` to a few rows at a time, so that its working set fits in the CPU cache, and join the arrays."""
    rows = max(1, BLOCK // scores.shape[1])
    parts = [
        function(scores[first : first + rows]) for first in range(0, max(len(scores), 1), rows)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
