"""Negative preference optimisation (NPO): -(2/beta) log sigmoid(-beta r), r = S - S_ref, summed per answer.

The gradient vanishes once an answer is much less likely than under the reference. This prevents the collapse that
gradient ascent causes. Source: Zhang et al., "Negative Preference Optimization" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Needs, Positive, StepRows, Weight, preference

if TYPE_CHECKING:
    import torch


class Params(MethodParams):
    beta: Positive
    retain_weight: Weight


class Method(protocol.Method[Params], params=Params):
    """F = -(2/beta) log sigmoid(-beta (S - S_ref)), the mean over answers."""

    needs = Needs(reference_log_probs=True)

    def forget_loss(self, rows: StepRows) -> torch.Tensor:
        return preference(rows.reference_log_probs - rows.forward.log_probs, self.params.beta)
