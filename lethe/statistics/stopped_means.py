"""Means of samples that a rule may have stopped after looking at the answers: bounds at the stop, many samples at once.

The capital at the stop is a product over the draws, so equal values count together, and one array holds all samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from lethe.errors import BadValue
from lethe.statistics.checks import check_alpha, check_scores
from lethe.statistics.comparison import Interval
from lethe.statistics.sequential import mixture

STEPS = 32  # bisection steps: down to 2^-32 of the unit interval, below EDGE
EDGE = 1e-9  # means closer to 0 or 1 count as 0 or 1
METHOD = "mixture martingale, at the stop"
ASSUMES = "independent draws of which each is drawn before its value is known"


class StoppedSamples:
    """The distinct values of each sample in [0, 1], with their counts.

    Parameters
    ----------
    samples : sequence of arrays of shape (n,)
        All draws of each sample up to its stop, without missing values.
    """

    def __init__(self, samples: Sequence[np.ndarray]):
        if not samples or any(len(own) == 0 for own in samples):
            raise BadValue("samples", [len(own) for own in samples], "at least one sample, and a draw in each")
        parts = [np.unique(check_scores(own)[0], return_counts=True) for own in samples]
        self.values = np.concatenate([values for values, _ in parts])
        self.counts = np.concatenate([counts for _, counts in parts])
        lengths = [len(values) for values, _ in parts]
        self.starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        self.of = np.repeat(np.arange(len(parts)), lengths)

    def log_capitals(self, means: np.ndarray) -> np.ndarray:
        """(samples,) the log capital at the stop against "the mean of each sample is at least ``means``"."""
        nodes = [mixture(float(mean), above=False) for mean in means]
        q, log_weights = (np.stack(part) for part in zip(*nodes, strict=True))
        level = (1 - q) / (1 - means[:, None])
        slope = q / means[:, None] - level
        steps = slope[self.of]
        steps *= self.values[:, None]
        steps += level[self.of]
        np.log(steps, out=steps)
        steps *= self.counts[:, None]
        return np.asarray(logsumexp(np.add.reduceat(steps, self.starts, axis=0) + log_weights, axis=1))

    def p_values(self, means: np.ndarray) -> np.ndarray:
        """(samples,) the p-value of "the mean of each sample is at least ``means``", by Markov's inequality at the stop."""
        inside = np.clip(means, EDGE, 1 - EDGE)
        p = np.minimum(1.0, np.exp(-self.log_capitals(inside)))
        return np.where(means <= EDGE, 1.0, p)

    def uppers(self, alpha: float) -> np.ndarray:
        """(samples,) the upper bound of each mean, equal to `sequential.stopped_upper` of each sample.

        Examples
        --------
        >>> StoppedSamples([np.zeros(100), np.ones(100)]).uppers(alpha=0.05).round(4).tolist()
        [0.0372, 1.0]
        """
        check_alpha(alpha)
        goal = math.log(1 / alpha)
        low = np.full(len(self.starts), EDGE)
        high = np.full(len(self.starts), 1 - EDGE)
        refuted = self.log_capitals(high) >= goal
        for _ in range(STEPS):
            middle = (low + high) / 2
            reached = self.log_capitals(middle) >= goal
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return np.where(refuted, np.minimum(1.0, high + EDGE), 1.0)


def stopped_average(samples: Sequence[np.ndarray], alpha: float) -> Interval:
    """Interval of the average over samples of their means; NaN counts as 0 for the lower end and as 1 for the upper end.

    The two bounds of each of m samples are at alpha / (2 m), and the average of the bounds holds under any dependence
    between the samples (Bonferroni). The samples may have different sizes.
    """
    check_alpha(alpha)
    share = alpha / (2 * len(samples))
    upper = StoppedSamples([np.nan_to_num(own, nan=1.0) for own in samples]).uppers(share)
    lower = 1 - StoppedSamples([1 - np.nan_to_num(own, nan=0.0) for own in samples]).uppers(share)
    judged = [float(np.nanmean(own)) for own in samples if not np.isnan(own).all()]
    value = float(np.mean(judged)) if judged else math.nan
    n = sum(len(own) for own in samples)
    return Interval(value, float(lower.mean()), float(upper.mean()), n, alpha, METHOD, ASSUMES)
