"""Membership inference from scores: entropy scores, a threshold fitted once, and the area under the ROC curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from lethe.errors import BadValue

LOG_FLOOR = 1e-30  # replaces a probability of 0 inside a logarithm


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """-sum_j p_j ln p_j over the last axis, in nats; ``probabilities`` is (..., classes)."""
    return -xlogy(probabilities, np.maximum(probabilities, LOG_FLOOR)).sum(axis=-1)


def modified_entropy(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mentr(p, y) = -(1 - p_y) ln p_y - sum_{j != y} p_j ln(1 - p_j), in nats (Song and Mittal 2021, eq. 8).

    Unlike the entropy, Mentr is low only when the model is confident in the *right* class. ``probabilities`` is
    (points, classes), ``labels`` (points,) whole numbers. Returns (points,), never negative.
    """
    probabilities = np.atleast_2d(np.asarray(probabilities, float))
    labels = np.atleast_1d(labels)
    points = np.arange(len(labels))
    p = probabilities[points, labels]
    others = xlogy(probabilities, np.maximum(1 - probabilities, LOG_FLOOR))
    others[points, labels] = 0
    return -(1 - p) * np.log(np.maximum(p, LOG_FLOOR)) - others.sum(axis=1)


@dataclass(frozen=True)
class Threshold:
    """Accept a point as a member when its score is at least ``value``."""

    value: float
    balanced_accuracy: float
    n_members: int
    n_nonmembers: int


def fit_threshold(members: np.ndarray, nonmembers: np.ndarray) -> Threshold:
    """The observed score v that maximises (P[member >= v] + P[nonmember < v]) / 2.

    Among several maximisers the first one is chosen, members before nonmembers. ``members`` and ``nonmembers`` are the
    scores of points known to be inside and outside the training set. These points must be in neither the forget set nor the
    test set of the game.
    """
    members, nonmembers = np.asarray(members, float), np.asarray(nonmembers, float)
    if not len(members) or not len(nonmembers):
        raise BadValue("scores", f"{len(members)} members, {len(nonmembers)} nonmembers", "at least one of each")
    observed = np.concatenate([members, nonmembers])
    if np.isnan(observed).any():
        raise BadValue("scores", "NaN", "numbers")
    accepted = len(members) - np.searchsorted(np.sort(members), observed)
    rejected = np.searchsorted(np.sort(nonmembers), observed)
    # Whole numbers make equal accuracies tie exactly, so that the first one is chosen.
    best = int(np.argmax(accepted * len(nonmembers) + rejected * len(members)))
    accuracy = (accepted[best] / len(members) + rejected[best] / len(nonmembers)) / 2
    return Threshold(float(observed[best]), float(accuracy), len(members), len(nonmembers))


def auc(members: np.ndarray, nonmembers: np.ndarray) -> float:
    """P[member > nonmember] + P[equal] / 2, the area under the ROC curve (Mann-Whitney), in [0, 1]."""
    members, nonmembers = np.asarray(members, float), np.sort(np.asarray(nonmembers, float))
    below = np.searchsorted(nonmembers, members, side="left")
    not_above = np.searchsorted(nonmembers, members, side="right")
    return float((below + not_above).sum() / 2 / (len(members) * len(nonmembers)))
