"""Adversaries of the image game, by the name under ``attacks`` of an entry.

``ATTACKS[name](shadows, seed)`` returns a fitted adversary. The game fits it **once**, on the shadow half of the data, which
is disjoint from every forget and test set, and it attacks both halves of every swapped pair: refitted on each split it would
find chance differences even in a retrained model. All attacks here are weak (the answer on a point ignores the other points)
and black-box.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import log_softmax, logsumexp, xlogy

from lethe.audits.unlearning_game.rounds import Adversary, Shadow, ThresholdAttack

SMALLEST_SPREAD = 1e-3  # shadow models that all agree have a spread of 0, which would make the ratio infinite
FLOOR = -15.0  # lower log-probabilities add no information and would dominate the attack network's input


@dataclass(frozen=True)
class View:
    """An adversary's view of one image model on n points.

    ``logits`` (n, classes), ``labels`` (n,). ``reference`` (shadow models, n, classes): the logits of the shadow
    models on the same points, NaN where a shadow model learned the point. ``model``: folder of the weights.
    """

    logits: np.ndarray
    labels: np.ndarray
    reference: np.ndarray
    model: Path | None = None

    @property
    def log_probabilities(self) -> np.ndarray:
        return log_softmax(self.logits.astype(np.float64), axis=-1)

    @property
    def log_confidence(self) -> np.ndarray:
        """The (n,) ln p_y, which orders points as p_y does, without ties where p_y rounds to 1."""
        return self.log_probabilities[np.arange(len(self.labels)), self.labels]


Shadows = Sequence[Shadow[View]]


def by_threshold(score: Callable[[View], np.ndarray], shadows: Shadows, seed: int) -> ThresholdAttack[View]:
    """Fit one threshold per class on a score that needs no fit itself."""
    return ThresholdAttack(score, shadows)


class Correctness:
    """Accept the points that the model classifies correctly (Yeom et al. 2018). Nothing is fitted."""

    def __init__(self, shadows: Shadows, seed: int):
        pass

    def score(self, view: View) -> np.ndarray:
        return (view.logits.argmax(axis=-1) == view.labels).astype(np.float64)

    accept = score


def logit_confidence(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return ln p_y - ln(1 - p_y) = logit_y - logsumexp of the others, (..., n) from logits (..., n, classes)."""
    picks = np.arange(len(labels))
    others = logits.astype(np.float64)
    of_label = others[..., picks, labels].copy()
    others[..., picks, labels] = -np.inf
    return of_label - logsumexp(others, axis=-1)


def deviation(view: View) -> np.ndarray:
    """Return (n,) the model's confidence minus the mean over the shadow models that did not learn the point."""
    reference = np.nanmean(logit_confidence(view.reference, view.labels), axis=0)
    return logit_confidence(view.logits, view.labels) - reference


def likelihood_ratio(shadows: Shadows, seed: int) -> ThresholdAttack[View]:
    """The likelihood-ratio attack of Carlini et al. (2022), limited to the data of a fair adversary.

    The logit-scaled confidence z = ln p_y - ln(1 - p_y) is approximately normal, and the shadow models that did not learn
    the point give its mean without learning, mu_out(x). The score is the likelihood ratio of two normal distributions of
    z - mu_out(x), fitted on the shadow points, one for members and one for non-members. A point that is easy for every
    model therefore does not look learned.
    """
    normals = []
    for side in ("members", "nonmembers"):
        deviations = np.concatenate([deviation(getattr(shadow, side)) for shadow in shadows])
        normals.append((deviations.mean(), max(deviations.std(), SMALLEST_SPREAD)))

    def score(view: View) -> np.ndarray:
        d = deviation(view)
        inside, outside = (-(((d - mean) / sd) ** 2) / 2 - np.log(sd) for mean, sd in normals)
        return inside - outside

    return ThresholdAttack(score, shadows)


def shadow(shadows: Shadows, seed: int) -> ThresholdAttack[View]:
    """The shadow-model attack of Shokri et al. (2017): an attack network per class tells members from non-members.

    A network reads the sorted log-probabilities and the log-probability of the correct class. A class that lacks members
    or non-members has no network, and each of its points the score 1/2.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    views = [view for one in shadows for view in (one.members, one.nonmembers)]
    answers = np.concatenate([np.full(len(view.labels), i % 2 == 0, float) for i, view in enumerate(views)])
    inputs = np.concatenate([_inputs(view) for view in views])
    labels = np.concatenate([view.labels for view in views])
    networks = {}
    warnings.filterwarnings("ignore", category=ConvergenceWarning)  # 200 epochs are enough here
    for label in np.unique(labels).tolist():
        of_class = labels == label
        if len(np.unique(answers[of_class])) == 2:
            network = make_pipeline(StandardScaler(), MLPClassifier((64,), alpha=1e-2, random_state=seed))
            networks[label] = network.fit(inputs[of_class], answers[of_class])

    def score(view: View) -> np.ndarray:
        inputs, scores = _inputs(view), np.full(len(view.labels), 0.5)
        for label, network in networks.items():
            rows = view.labels == label
            if rows.any():
                scores[rows] = network.predict_proba(inputs[rows])[:, 1]
        return scores

    return ThresholdAttack(score, shadows)


def _inputs(view: View) -> np.ndarray:
    ordered = np.sort(view.log_probabilities, axis=1)[:, ::-1]
    return np.maximum(np.hstack([ordered, view.log_confidence[:, None]]), FLOOR)


LOG_FLOOR = 1e-30  # replaces a probability of 0 inside a logarithm


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """-sum_j p_j ln p_j over the last axis, in nats; ``probabilities`` is (..., classes)."""
    return -xlogy(probabilities, np.maximum(probabilities, LOG_FLOOR)).sum(axis=-1)


def modified_entropy(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mentr(p, y) = -(1 - p_y) ln p_y - sum_{j != y} p_j ln(1 - p_j), in nats (Song and Mittal 2021, eq. 8); (points,).

    Unlike the entropy, Mentr is low only when the model is confident in the *right* class. ``probabilities`` is
    (points, classes), ``labels`` (points,).
    """
    probabilities = np.atleast_2d(np.asarray(probabilities, float))
    labels = np.atleast_1d(labels)
    points = np.arange(len(labels))
    p = probabilities[points, labels]
    others = xlogy(probabilities, np.maximum(1 - probabilities, LOG_FLOOR))
    others[points, labels] = 0
    return -(1 - p) * np.log(np.maximum(p, LOG_FLOOR)) - others.sum(axis=1)


# Confidence, entropy and modified entropy, which counts certainty of a wrong class as uncertainty: Song and Mittal (2021).
ATTACKS: dict[str, Callable[[Shadows, int], Adversary[View]]] = {
    "confidence": partial(by_threshold, lambda view: view.log_confidence),
    "correctness": Correctness,
    "entropy": partial(by_threshold, lambda view: -entropy(np.exp(view.log_probabilities))),
    "likelihood_ratio": likelihood_ratio,
    "modified_entropy": partial(
        by_threshold, lambda view: -modified_entropy(np.exp(view.log_probabilities), view.labels)
    ),
    "shadow": shadow,
}
