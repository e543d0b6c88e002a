"""Membership inference by the loss per compressed byte: simple text has a low loss anyway (Carlini et al., 2021)."""

from __future__ import annotations

import zlib

from lethe.scoring.likelihood import Item, loss


def measure(item: Item) -> float:
    """Minus the mean loss per token, divided by the answer's size in bytes after zlib compression."""
    # A text may contain lone surrogates, which UTF-8 cannot encode.
    return -loss(item.answer) / len(zlib.compress(item.text.encode("utf-8", "surrogatepass")))
