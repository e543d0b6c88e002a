"""Preference of a refusal to the true answer (IdkDPO): -(2/beta) log sigmoid(beta (r(refusal) - r(answer))).

r = S - S_ref is the gain of a summed log-probability over the model before unlearning; refusal and answer may differ in
length, and nothing is normalised. Each visit of a row draws a new refusal. Source: Zhang et al., "Negative Preference
Optimization" (2024), whose factor 2/beta plain DPO lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lethe.config.fields import Place
from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Needs, Positive, Rows, Weight, preference
from lethe.unlearning.second_answers import REFUSALS

if TYPE_CHECKING:
    import torch

    from lethe.io.artifacts import Row


class Params(MethodParams):
    """``beta``, the refusals, and the weight of the retain term."""

    beta: Positive = 0.1
    refusals: Annotated[tuple[Place, ...], Field(min_length=1)] = REFUSALS
    retain_weight: Weight = 1.0


class Method(protocol.Method[Params], params=Params):
    """F = -(2/beta) log sigmoid(beta (r(refusal) - r(answer))), the mean over rows; R = NLL or KL."""

    needs = Needs(reference_log_probs=True, second_answers=True)

    def second_answers(self, row: Row) -> Sequence[str]:
        return self.params.refusals

    def forget_loss(self, rows: Rows) -> torch.Tensor:
        refusal, answer = (one.forward.log_probs - one.reference_log_probs for one in (rows.second, rows))
        return preference(refusal - answer, self.params.beta)
