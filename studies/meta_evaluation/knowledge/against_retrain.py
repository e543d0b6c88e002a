"""Forget quality, PrivLeak and the attack with Retrain as reference: every number of the stage `compare`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lethe.evaluation.against_retrain import against_retrain
from lethe.results.table import Numbers, Rows
from studies.meta_evaluation.knowledge import MEMBERSHIP_PARTS, OTHERS_PART, Asking, Number, Seen, of_flat

ENDINGS = ("_missing", "_low", "_high")  # counts, and the ends of an interval whose value takes part
OF_TRUTH_RATIO = ("forget_quality", "forget_ks")  # a test on the truth ratios of the forget set
# These are smaller where the model knows more; each with its number that is larger.
SMALLER = {
    # a p-value: small where the model differs from Retrain; 1 - p would round every p below 1e-16 to one value
    "forget_quality": lambda value: math.inf if value == 0 else -math.log10(value),
    "privleak": lambda value: -value / 100,  # 0 like Retrain, -100 where every row is remembered
}


def values(seen: Seen, retrain: Seen | None, asking: Asking) -> Iterator[Number]:
    """Nothing without a Retrain. A difference from Retrain need not be knowledge: the numbers take part as printed."""
    if retrain is None:
        return
    rows = Rows(seen.name)
    against_retrain(seen.likelihoods, retrain.likelihoods, asking.metrics.alpha).to_rows(rows)
    for key, value in of_flat(Numbers(rows.rows).values, frozenset(), ENDINGS):
        knows = SMALLER[key](value) if key in SMALLER else value
        parts = (OTHERS_PART,) if key in OF_TRUTH_RATIO else MEMBERSHIP_PARTS
        yield Number(key, value, knows, parts, larger=key not in SMALLER)
