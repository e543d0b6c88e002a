"""A membership attack that is learned: a linear classifier of the statistics of an answer's tokens.

Learned Transfer MIA (Ilic et al., 2026, arXiv 2604.03199) learns a network from rows whose membership is known, of other
models. Here Fisher's linear discriminant learns from rows of the model under test itself, of which one part was trained on
and the other was not. So the attack needs no second model, and it is a function of the model and of rows apart from those
under test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lethe.models.likelihood import AnswerTokens

RIDGE = 0.1  # of a standardised variance: statistics of one answer are nearly collinear
QUANTILES = (0.0, 0.1, 0.25, 0.5)  # of the tokens of an answer: members have few surprising ones


def statistics_of(tokens: AnswerTokens) -> np.ndarray:
    """(2 (1 + quantiles) + 3,) statistics of an answer of at least one token.

    Mean and low quantiles of ln p of its tokens, the same standardised by the vocabulary as in min-k%++, the mean expected
    ln p (minus the entropy), its mean spread, and the share of tokens that are the most likely ones.
    """
    values = []
    for of_tokens in (tokens.log_probs, tokens.standardised):
        values += [of_tokens.mean(), *np.quantile(of_tokens, QUANTILES)]
    values += [tokens.expected.mean(), tokens.spread.mean(), tokens.greedy.mean()]
    return np.array(values, dtype=np.float64)


@dataclass(frozen=True)
class Discriminant:
    """Fisher's linear discriminant of d statistics: ``centre``, ``scale`` and ``weights``, (d,) each."""

    centre: np.ndarray
    scale: np.ndarray
    weights: np.ndarray

    @classmethod
    def learned(
        cls, members: Sequence[AnswerTokens], others: Sequence[AnswerTokens]
    ) -> Discriminant:
        """The discriminant of rows that were trained on and rows that were not, two of each at least."""
        inside = np.array([statistics_of(tokens) for tokens in members])
        outside = np.array([statistics_of(tokens) for tokens in others])
        both = np.concatenate([inside, outside])
        centre = both.mean(axis=0)
        spread = both.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        inside = (inside - centre) / scale
        outside = (outside - centre) / scale
        within = (np.cov(inside.T, bias=True) + np.cov(outside.T, bias=True)) / 2
        difference = inside.mean(axis=0) - outside.mean(axis=0)
        weights = np.linalg.solve(within + RIDGE * np.eye(len(centre)), difference)
        return cls(centre, scale, weights)

    def score(self, tokens: AnswerTokens) -> float:
        """How much an answer looks like one that was trained on; higher for members."""
        standardised = (statistics_of(tokens) - self.centre) / self.scale
        return float(standardised @ self.weights)
