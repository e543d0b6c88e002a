"""What the adversaries of every game share: shadow models' views, the protocol, and a threshold per class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from lethe.statistics.two_sample import fit_threshold


class Labelled(Protocol):
    """A view of a model on n points, such as `View` and `TextView`."""

    @property
    def labels(self) -> np.ndarray:
        """Return the class of each point, (n,)."""


V = TypeVar("V", bound=Labelled)
Seen = TypeVar("Seen", bound=Labelled, contravariant=True)


@dataclass(frozen=True)
class Shadow(Generic[V]):
    """A shadow model's views of the points that it learned and of the others."""

    members: V
    nonmembers: V


class Adversary(Protocol[Seen]):
    """A fitted adversary, which answers for all points of a view at once."""

    def score(self, view: Seen, /) -> np.ndarray:
        """Return (n,) float64, higher where the model more probably learned the point."""

    def accept(self, view: Seen, /) -> np.ndarray:
        """Return (n,) in [0, 1], the probability that the adversary says "forget"."""


class ThresholdAttack(Generic[V]):
    """Accept where ``score`` reaches the threshold of the point's class, fitted on all shadow models together.

    A class without shadow points uses the threshold fitted on all classes.
    """

    def __init__(self, score: Callable[[V], np.ndarray], shadows: Sequence[Shadow[V]]):
        self.score = score
        sides = [one.members for one in shadows], [one.nonmembers for one in shadows]
        scores = [np.concatenate([score(view) for view in side]) for side in sides]
        classes = [np.concatenate([view.labels for view in side]) for side in sides]
        self.everywhere = fit_threshold(*scores).value
        self.by_class = {}
        for label in np.intersect1d(*classes).tolist():
            of_class = [one[labels == label] for one, labels in zip(scores, classes, strict=True)]
            self.by_class[label] = fit_threshold(*of_class).value

    def accept(self, view: V) -> np.ndarray:
        """Return 1 where the score reaches the threshold of the point's class, else 0."""
        thresholds = [self.by_class.get(label, self.everywhere) for label in view.labels.tolist()]
        return (self.score(view) >= np.array(thresholds)).astype(np.float64)
