"""Membership inference by the loss relative to a reference model's: what any model finds easy cancels out (Carlini et
al., 2021)."""

from __future__ import annotations

from stages.scoring.likelihood import Item, loss


def measure(item: Item) -> float:
    """The reference model's mean loss a token less the model's, in nats; NaN without a reference."""
    return loss(item.reference) - loss(item.answer)
