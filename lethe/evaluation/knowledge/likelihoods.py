"""Every measure of the likelihood of the true answer: means over the forget set, and membership attacks as AUC."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lethe.evaluation.knowledge import LIKELIHOOD_PART, Asking, Number, Seen
from lethe.evaluation.likelihood_metrics import membership
from lethe.registry import LIKELIHOODS
from lethe.scoring.tofu import forget_truth, mean_term

MEMBERSHIP = "mia_"  # a measure of this name is a membership attack: forget rows against held-out rows
TRUTH_RATIO = "truth_ratio"


def values(seen: Seen, retrain: Seen | None, asking: Asking) -> Iterator[Number]:
    """One number per member of the registry of likelihoods.

    TOFU's truth ratio of the forget set, mean min(R, 1 / R), is larger where the model knows less; per question -R is
    larger where the model knows more.
    """
    forget, heldout = seen.likelihoods["forget"], seen.likelihoods.get("heldout")
    for name in LIKELIHOODS:
        own = forget[name].to_numpy(dtype=np.float64)
        sign = -1.0 if name == TRUTH_RATIO else 1.0
        each = dict(zip(forget["prompt_id"], (sign * own).tolist(), strict=True))
        if name.startswith(MEMBERSHIP):
            found = None if heldout is None else membership(forget[name], heldout[name], asking.metrics.alpha)
            value = found.value if found else math.nan
            yield Number(f"{name}_auc", value, value, (LIKELIHOOD_PART,), each)
        elif name == TRUTH_RATIO:
            value = forget_truth(own).value
            yield Number(f"forget_{name}", value, 1 - value, (LIKELIHOOD_PART,), each)
        else:
            value = mean_term(own).value
            yield Number(f"forget_{name}", value, value, (LIKELIHOOD_PART,), each)
