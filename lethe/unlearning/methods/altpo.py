"""Preference of alternative answers to the true one (AltPO): IdkDPO's loss with plausible alternatives.

The model before unlearning writes the alternatives to each forget question itself (`lethe.unlearning.second_answers`).
Source: Mekala et al., "Alternate Preference Optimization for Unlearning Factual Knowledge in Large Language Models" (2024),
with 5 alternatives per question, beta 0.1 and a retain weight of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lethe.config.fields import Count
from lethe.unlearning import protocol
from lethe.unlearning.protocol import Before, MethodParams, Needs, Place, Positive, Rows, Weight, preference
from lethe.unlearning.second_answers import alternatives

if TYPE_CHECKING:
    import torch

    from lethe.io.artifacts import Row


class Params(MethodParams):
    """``beta``, the settings for writing alternatives, and the weight of the retain term."""

    beta: Positive = 0.1
    alternatives: Count = 5
    request: Place | None = (
        None  # the request to the model, with {question} and optionally {answer}; null: the question
    )
    temperature: Positive = 1.0
    max_new_tokens: Count = 64
    retain_weight: Weight = 1.0


class Method(protocol.Method[Params], params=Params):
    """F = -(2/beta) log sigmoid(beta (r(alternative) - r(answer))), the mean over rows; R = NLL or KL."""

    needs = Needs(reference_log_probs=True, second_answers=True)

    def all_second_answers(self, rows: Sequence[Row], before: Before) -> list[Sequence[str]]:
        own = self.params
        return alternatives(
            before, rows, own.alternatives, own.temperature, own.max_new_tokens, own.request, seed=before.seed
        )

    def forget_loss(self, rows: Rows) -> torch.Tensor:
        alternative, answer = (one.forward.log_probs - one.reference_log_probs for one in (rows.second, rows))
        return preference(alternative - answer, self.params.beta)
