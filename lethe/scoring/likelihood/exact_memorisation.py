"""Exact memorisation: the share of the answer's tokens that are the most likely next token (Tirumala et al., 2022)."""

from __future__ import annotations

from lethe.scoring.likelihood import Item


def measure(item: Item) -> float:
    """The share of the answer's tokens, in [0, 1]; NaN without tokens."""
    return float(item.answer.greedy.mean()) if len(item.answer.greedy) else float("nan")
