"""Evidence about one question at any time by graded scores: the mean score of a model, beyond Retrain's.

The capital of `lethe.statistics.sequential` against "the mean is at least c" rises with c. Against
"the mean is at least Retrain's and d more" take, for each cell [g, h] of Retrain's possible means,
the product of the capitals against "the model's mean is at least g + d" and "Retrain's mean is at
most h". The least product counts. At Retrain's true mean the product is a supermartingale, and by
monotonicity its cell has at most that. No pairs of answers and no equal numbers are needed.

Assumes what `lethe.statistics.anytime` assumes, for scores in [0, 1].
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from lethe.statistics.anytime import LN2
from lethe.statistics.checks import check_scores
from lethe.statistics.sequential import EDGE, mixture

CORNERS = 0.02  # how far the least cell may lie below its corners, in ln e
CELLS = 400  # at most


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """The distinct scores of the answers to one question, in [0, 1], with their counts."""

    values: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, times: int = 1) -> "ScoreCounts":
        """The sample of scores (n,) without missing ones, each counted ``times``."""
        if not len(scores):
            return cls(np.empty(0), np.empty(0))
        values, counts = np.unique(check_scores(scores)[0], return_counts=True)
        return cls(values, counts * times)

    def turned(self) -> "ScoreCounts":
        """The sample of 1 minus each score."""
        return ScoreCounts(1 - self.values, self.counts)

    def log_capital(self, mean: float) -> float:
        """ln of the capital against "the mean is at least ``mean``"; it rises with ``mean``.

        >>> ScoreCounts.of(np.zeros(3)).log_capital(0.5) > 0
        True
        """
        if not len(self.values):
            return 0.0
        null = min(max(mean, EDGE), 1 - EDGE)
        q, log_weights = mixture(null, above=False)
        level = (1 - q) / (1 - null)
        slope = q / null - level
        logs = self.counts @ np.log(self.values[:, None] * slope + level)
        log_capital = float(logsumexp(logs + log_weights))
        return log_capital if mean > EDGE else min(0.0, log_capital)  # every mean is at least 0


def log_e_scores_forgot(
    model: ScoreCounts, retrains: Sequence[ScoreCounts], tolerance: float
) -> float:
    """Return ln e against "the model's mean score is at least ``tolerance`` above that of every Retrain".

    Missing scores must count as 1 in ``model`` and as 0 in ``retrains``.
    """
    alone = model.log_capital(tolerance) if tolerance > 0 else -math.inf
    if not retrains:
        return alone
    beyond = [_log_e_beside(model, retrain, tolerance) for retrain in retrains]
    mean_beyond = float(np.logaddexp.reduce(beyond)) - math.log(len(beyond))
    return float(np.logaddexp(alone, mean_beyond)) - LN2


def _log_e_beside(model: ScoreCounts, retrain: ScoreCounts, tolerance: float) -> float:
    """Return ln e against "the model's mean score is at least ``tolerance`` above Retrain's"."""
    turned = retrain.turned()
    return _least(
        lambda mean: model.log_capital(mean + tolerance),
        lambda mean: turned.log_capital(1 - mean),
        tolerance,
    )


def log_e_scores_leak(
    model: ScoreCounts, retrains: Sequence[ScoreCounts], tolerance: float
) -> float:
    """Return ln e against "the model's mean score is at most ``tolerance`` above that of some Retrain".

    Missing scores must count as 0 in ``model`` and as 1 in ``retrains``. Without Retrain a score proves nothing.
    """
    if not retrains:
        return -math.inf
    turned = model.turned()
    beyond = []
    for retrain in retrains:
        beyond.append(
            _least(
                retrain.log_capital,
                lambda mean: turned.log_capital(1 - mean - tolerance),
                tolerance,
            )
        )
    return min(beyond)


def _least(
    rising: Callable[[float], float], falling: Callable[[float], float], difference: float
) -> float:
    """Return the least of rising(g) + falling(h) over cells [g, h] of Retrain's means.

    The least cell is halved until it lies at most `CORNERS` below the sums at its two corners.
    """
    low, high = max(0.0, -difference), min(1.0, 1 - difference)
    ends = {mean: (rising(mean), falling(mean)) for mean in (low, high)}
    cells = [(ends[low][0] + ends[high][1], low, high)]
    while True:
        least, g, h = cells[0]
        at_corners = min(sum(ends[g]), sum(ends[h]))
        if at_corners - least <= CORNERS or len(cells) >= CELLS:
            return least
        heapq.heappop(cells)
        middle = (g + h) / 2
        ends[middle] = (rising(middle), falling(middle))
        for left, right in ((g, middle), (middle, h)):
            heapq.heappush(cells, (ends[left][0] + ends[right][1], left, right))
