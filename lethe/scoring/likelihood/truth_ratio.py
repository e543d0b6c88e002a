"""Truth ratio R: the likelihood of the wrong answers relative to a correct answer (TOFU).

R = exp(-mean loss(wrong)) / exp(-loss(correct)): a geometric mean over the wrong answers, as in TOFU's own logs.
The correct answer is the paraphrased answer if the row has one (forget and retain), else the answer itself.
"""

from __future__ import annotations

import numpy as np

from lethe.scoring.likelihood import Item, loss


def measure(item: Item) -> float:
    """R, at least 0; below 1 if the model prefers the correct answer, NaN if the row has no wrong answers."""
    if not item.perturbed:
        return float("nan")
    correct = item.answer if item.paraphrased is None else item.paraphrased
    return float(ratio(np.asarray(loss(correct)), np.mean([loss(wrong) for wrong in item.perturbed])))


def ratio(correct: np.ndarray, wrong: np.ndarray | np.floating) -> np.ndarray:
    """R from the loss of the correct answer and the mean loss of the wrong ones."""
    with np.errstate(over="ignore"):
        return np.exp(correct - wrong)
