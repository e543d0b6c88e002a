"""Knowledge of a given answer: its probability, how it compares with wrong answers, and how much of it is memorised.

- ``probability``: exp(-loss), the geometric mean over the answer's tokens (TOFU).
- ``choice_probability``: p / (p + sum of p_wrong), TOFU's probability on real authors and world facts.
- ``truth_ratio``: R = exp(-mean loss(wrong)) / exp(-loss(correct)), with a geometric mean over the wrong answers as in TOFU's
  own logs; below 1 if the model prefers the correct answer.
- ``extraction_strength``: 1 - k / T, where k is the length of the shortest prefix of the T tokens after which every further
  token is the most likely one. A match at each step given the true prefix is a match of the greedy continuation, so one pass
  with the true tokens suffices. Source: Carlini et al. (2021), in the form of Wang et al., "Towards Effective Evaluations and
  Comparisons for LLM Unlearning Methods" (2025), section 3.
- ``exact_memorisation``: the share of the answer's tokens that are the most likely next token (Tirumala et al., 2022).
"""

from __future__ import annotations

import math

import numpy as np

from lethe.scoring.likelihood import Item, loss


def probability(item: Item) -> float:
    return math.exp(-loss(item.answer))


def choice_probability(item: Item) -> float:
    if not item.perturbed:
        return float("nan")
    return among(loss(item.answer), np.array([loss(wrong) for wrong in item.perturbed]))


def truth_ratio(item: Item) -> float:
    """The correct answer is the paraphrased answer if the row has one (forget and retain), else the answer itself."""
    if not item.perturbed:
        return float("nan")
    correct = item.answer if item.paraphrased is None else item.paraphrased
    return float(ratio(np.asarray(loss(correct)), np.mean([loss(wrong) for wrong in item.perturbed])))


def extraction_strength(item: Item) -> float:
    """1 if the question alone yields the answer, 0 if the answer's last token is not predicted."""
    greedy = item.answer.greedy
    if not len(greedy):
        return float("nan")
    wrong = np.flatnonzero(~np.asarray(greedy, dtype=bool))
    prefix = wrong[-1] + 1 if len(wrong) else 0
    return float(1 - prefix / len(greedy))


def exact_memorisation(item: Item) -> float:
    return float(item.answer.greedy.mean()) if len(item.answer.greedy) else float("nan")


def among(correct: float, wrong: np.ndarray) -> float:
    """p / (p + sum of p_wrong) from the losses of the answers; NaN if one of them is NaN."""
    losses = np.append(correct, wrong)
    weights = np.exp(losses.min() - losses)  # relative to the likeliest answer, so at least one does not underflow
    return float(weights[0] / weights.sum())


def ratio(correct: np.ndarray, wrong: np.ndarray | np.floating) -> np.ndarray:
    """R from the loss of the correct answer and the mean loss of the wrong ones."""
    with np.errstate(over="ignore"):
        return np.exp(correct - wrong)


MEMBERS = {
    one.__name__: one
    for one in (probability, choice_probability, truth_ratio, extraction_strength, exact_memorisation)
}
