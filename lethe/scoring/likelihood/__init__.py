"""Measures of the log-probabilities of given answers, without sampling: one module per measure.

A measure is one module with one function ``measure(item: Item) -> float``; a value that cannot be computed (no
answer tokens, no perturbed answers, ...) is NaN. The ``mia_`` measures are membership inference scores: a higher score
means that the row looks more like training data. `lethe.statistics.two_sample.auc_interval` turns them into an AUC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lethe.registry import LIKELIHOODS

if TYPE_CHECKING:
    from lethe.models.likelihood import AnswerTokens


@dataclass(frozen=True)
class Item:
    """One row of a data set under one model: its answers, token by token; ``text`` is the answer as written."""

    text: str
    answer: AnswerTokens
    paraphrased: AnswerTokens | None = None
    perturbed: tuple[AnswerTokens, ...] = ()


def likelihood(name: str) -> Callable[[Item], float]:
    """The ``measure`` function of the likelihood measure called ``name``."""
    return LIKELIHOODS[name].measure


def loss(tokens: AnswerTokens) -> float:
    """Mean negative log-probability per token in nats, end of sequence included; NaN without tokens."""
    return -float(tokens.log_probs.mean()) if len(tokens.log_probs) else float("nan")
