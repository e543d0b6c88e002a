"""Membership inference by the loss: members have a smaller loss (Yeom et al., 2018)."""

from __future__ import annotations

from lethe.scoring.likelihood import Item, loss


def measure(item: Item) -> float:
    """Minus the mean loss per token, in nats; NaN without tokens."""
    return -loss(item.answer)
