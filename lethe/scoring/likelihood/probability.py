"""Probability of the answer, normalised by its length: exp(-loss), the geometric mean over its tokens (TOFU)."""

from __future__ import annotations

import math

from lethe.scoring.likelihood import Item, loss


def measure(item: Item) -> float:
    """exp(-loss), in [0, 1]; NaN without tokens."""
    return math.exp(-loss(item.answer))
