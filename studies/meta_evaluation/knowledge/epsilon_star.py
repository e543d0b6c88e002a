"""Epsilon* of the losses on the forget set against those on held-out rows: the estimate and its lower bound."""

from __future__ import annotations

from collections.abc import Iterator

from lethe.statistics.epsilon_star import audit, recommended_delta
from studies.meta_evaluation.knowledge import MEMBERSHIP_PARTS, Asking, Number, Seen

LEAST = 2  # losses per side


def values(seen: Seen, retrain: Seen | None, asking: Asking) -> Iterator[Number]:
    """Nothing without held-out rows; both numbers may be infinite."""
    heldout = seen.likelihoods.get("heldout")
    if heldout is None:
        return
    losses = [-table["mia_loss"].dropna().to_numpy() for table in (seen.likelihoods["forget"], heldout)]
    if min(map(len, losses)) < LEAST:
        return
    settings = asking.epsilon_star
    delta = recommended_delta(len(losses[0])) if settings.delta is None else settings.delta
    found = audit(*losses, delta=delta, method=settings.method, cut=settings.cut, alpha=settings.alpha)
    for key in ("epsilon_star", "epsilon_lower"):
        value = float(getattr(found, key))
        yield Number(key, value, value, MEMBERSHIP_PARTS)
