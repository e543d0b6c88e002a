"""Range checks of the statistics' arguments; each check raises `BadValue`."""

from collections.abc import Callable

import numpy as np

from lethe.errors import BadValue
from lethe.errors import check as check

SMALLEST_ALPHA = 1e-100
BLOCK = 1 << 16  # scores


def check_alpha(alpha: float) -> None:
    """Raise `BadValue` outside [`SMALLEST_ALPHA`, 0.5]: the one-sided bounds are proven only up to
    one half.
    """
    legal = f"a number from {SMALLEST_ALPHA:g} to 0.5"
    check(SMALLEST_ALPHA <= alpha <= 0.5, "alpha", alpha, legal)


def check_share(name: str, value: float) -> None:
    """Raise `BadValue` outside (0, 1)."""
    check(0 < value < 1, name, value, "a number strictly between 0 and 1")


def check_count(name: str, value: int) -> None:
    """Raise `BadValue` below 1."""
    check(value >= 1, name, value, "a whole number of at least 1")


def check_scores(scores: np.ndarray, missing: str = "refuse") -> np.ndarray:
    """Return the scores as float64 of shape (prompts, n), each in [0, 1]; a vector is one prompt.

    A missing score is NaN, which is an error unless ``missing`` is "worst".
    """
    check(missing in ("refuse", "worst"), "missing", missing, "refuse or worst")
    scores = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    if scores.ndim != 2 or not scores.shape[1]:
        legal = "of shape (prompts, n), with a score for each prompt"
        raise BadValue("scores", f"shape {scores.shape}", legal)

    legal = "numbers in [0, 1]"
    low = np.fmin.reduce(scores, axis=None, initial=0.0)
    high = np.fmax.reduce(scores, axis=None, initial=0.0)
    if low < 0:
        raise BadValue("scores", float(low), legal)
    if high > 1:
        raise BadValue("scores", float(high), legal)
    if missing == "refuse" and np.isnan(scores.sum()):
        raise BadValue("scores", "NaN", legal, "Decide how missing scores count (--missing).")
    return scores


def in_blocks(
    function: Callable[[np.ndarray], dict[str, np.ndarray]], scores: np.ndarray
) -> dict[str, np.ndarray]:
    """Apply ``function`` to a few rows at a time, so that its working set fits in the CPU cache,
    and join the arrays.
    """
    rows = max(1, BLOCK // scores.shape[1])
    blocks: dict[str, list[np.ndarray]] = {}
    for first in range(0, max(len(scores), 1), rows):
        for name, values in function(scores[first : first + rows]).items():
            blocks.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in blocks.items()}
