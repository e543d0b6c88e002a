"""The unlearning game's quality on one split: forget rows against held-out rows, without the swapped half.

The quality is 1 minus the largest advantage |P(accept | forget) - P(accept | held out)| over threshold adversaries, one
per membership measure (Definitions 3.2 and 3.7 of "Towards Reliable Empirical Machine Unlearning Evaluation: A
Game-Theoretic View"). The whole game also trains models with both sets exchanged, which costs a training per model; here
the threshold is chosen on the rows it is tried on, so the advantage is too large and the quality too small.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lethe.registry import LIKELIHOODS
from studies.meta_evaluation.knowledge import MEMBERSHIP_PARTS, Asking, Number, Seen
from studies.meta_evaluation.knowledge.likelihoods import MEMBERSHIP


def values(seen: Seen, retrain: Seen | None, asking: Asking) -> Iterator[Number]:
    """Nothing without held-out rows; the quality is smaller where the model knows more."""
    heldout = seen.likelihoods.get("heldout")
    if heldout is None:
        return
    gaps = [
        advantage(seen.likelihoods["forget"][name].to_numpy(), heldout[name].to_numpy())
        for name in LIKELIHOODS
        if name.startswith(MEMBERSHIP)
    ]
    known = [gap for gap in gaps if not np.isnan(gap)]
    if known:
        yield Number("game_quality_one_split", 1 - max(known), max(known), MEMBERSHIP_PARTS, larger=False)


def advantage(forget: np.ndarray, heldout: np.ndarray) -> float:
    """The largest |P(score >= t | forget) - P(score >= t | held out)| over all thresholds t, in [0, 1].

    Examples
    --------
    >>> advantage(np.array([3.0, 2.0, 1.0]), np.array([1.5, 0.5, 0.0]))
    0.6666666666666667
    """
    own, other = (values[~np.isnan(values)] for values in (forget, heldout))
    if not len(own) or not len(other):
        return float("nan")
    points = np.concatenate([own, other])
    shares = [np.array([(side >= point).mean() for point in points]) for side in (own, other)]
    return float(np.abs(shares[0] - shares[1]).max())
