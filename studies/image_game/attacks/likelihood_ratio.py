"""A likelihood-ratio attack from the shadow models (Carlini et al. 2022), limited to the data of a fair adversary.

The score of a point is the logit-scaled confidence z = ln p_y - ln(1 - p_y), which is approximately normal. The shadow
models that did not learn the point give the expected confidence without learning: mu_out(x). The attack fits two normal
distributions of z - mu_out(x) on the shadow points, one for members and one for non-members, and scores by their
likelihood ratio. A point that is easy for every model therefore does not look learned.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from lethe.audits.unlearning_game.adversaries import Shadow, ThresholdAttack
from studies.image_game.attacks import View

SMALLEST_SPREAD = 1e-3  # shadow models that all agree have a spread of 0, which would make the ratio infinite


def confidence(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return ln p_y - ln(1 - p_y) = logit_y - logsumexp of the others, (..., n) from logits (..., n, classes)."""
    picks = np.arange(len(labels))
    others = logits.astype(np.float64)
    of_label = others[..., picks, labels].copy()
    others[..., picks, labels] = -np.inf
    return of_label - logsumexp(others, axis=-1)


def deviation(view: View) -> np.ndarray:
    """Return (n,) the model's confidence minus the mean over the shadow models that did not learn the point."""
    return confidence(view.logits, view.labels) - np.nanmean(confidence(view.reference, view.labels), axis=0)


class LikelihoodRatio:
    """The likelihood ratio of two normal distributions, fitted on the shadow models."""

    def __init__(self, shadows: Sequence[Shadow[View]]):
        self.normals = []
        for side in ("members", "nonmembers"):
            deviations = np.concatenate([deviation(getattr(shadow, side)) for shadow in shadows])
            self.normals.append((deviations.mean(), max(deviations.std(), SMALLEST_SPREAD)))

    def score(self, view: View) -> np.ndarray:
        """Return the logarithm of the ratio of the two normal densities."""
        d = deviation(view)
        inside, outside = (-(((d - mean) / sd) ** 2) / 2 - np.log(sd) for mean, sd in self.normals)
        return inside - outside


def fit(shadows: Sequence[Shadow[View]], seed: int) -> ThresholdAttack[View]:
    """Fit the attack on the shadow models."""
    return ThresholdAttack(LikelihoodRatio(shadows).score, shadows)
