"""Negative preference optimisation (NPO): -(2/beta) log sigmoid(-beta r), r = S - S_ref, summed per answer.

The gradient vanishes once an answer is much less likely than under the reference. This prevents the collapse that
gradient ascent causes. Source: Zhang et al., "Negative Preference Optimization" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Needs, Positive, Rows, Weight

if TYPE_CHECKING:
    import torch


class Params(MethodParams):
    """``beta`` and the weight of the retain term."""

    beta: Positive
    retain_weight: Weight


class Method(protocol.Method[Params], params=Params):
    """F = -(2/beta) log sigmoid(-beta (S - S_ref)), the mean over answers."""

    needs = Needs(reference_log_probs=True)

    def forget_loss(self, rows: Rows) -> torch.Tensor:
        from torch.nn.functional import logsigmoid

        beta, ratio = self.params.beta, rows.forward.log_probs - rows.reference_log_probs
        return -(2 / beta) * logsigmoid(-beta * ratio).mean()
