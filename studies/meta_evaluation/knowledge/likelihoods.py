"""Every measure of the likelihood of the true answer: means over the forget set, and membership attacks as AUC."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lethe.evaluation.likelihood_metrics import membership
from lethe.models.likelihood import AnswerTokens
from lethe.registry import LIKELIHOODS
from lethe.scoring.likelihood import Item
from lethe.scoring.tofu import forget_truth, mean_term
from studies.meta_evaluation.knowledge import ANSWER_PART, MEMBERSHIP_PARTS, OTHERS_PART, Asking, Number, Seen

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
            yield Number(f"{name}_auc", value, value, MEMBERSHIP_PARTS, each)
        elif name == TRUTH_RATIO:
            value = forget_truth(own).value
            yield Number(f"forget_{name}", value, 1 - value, parts_of(name), each, larger=False)
        else:
            value = mean_term(own).value
            yield Number(f"forget_{name}", value, value, parts_of(name), each)


def parts_of(name: str) -> tuple[str, ...]:
    """The answers whose likelihood a measure reads: those whose tokens change its value on a made-up row.

    Examples
    --------
    >>> parts_of("probability"), parts_of("truth_ratio")
    (('forget answers',), ('other forget answers',))
    """
    rng = np.random.default_rng(0)
    answer, changed, paraphrased, wrong = (_tokens(rng) for _ in range(4))
    row = Item("Ada was born in Turin.", answer, paraphrased, (wrong,))
    measure = LIKELIHOODS[name]
    whole = measure(row)
    reads_answer = measure(replace(row, answer=changed)) != whole
    others = (replace(row, paraphrased=changed), replace(row, perturbed=(changed,)))
    reads_others = any(measure(other) != whole for other in others)
    found = ((ANSWER_PART, reads_answer), (OTHERS_PART, reads_others))
    return tuple(part for part, read in found if read) or (ANSWER_PART,)


def _tokens(rng: np.random.Generator) -> AnswerTokens:
    greedy = rng.random(10) < 0.5
    return AnswerTokens(-rng.exponential(size=10), -1 - rng.random(10), 1 + rng.random(10), greedy)
