"""Simple negative preference optimisation (SimNPO): -(2/beta) log sigmoid(beta (l - delta)), l = mean NLL of a row.

The loss needs no reference model, and each row's own length normalises the row. Source: Fan et al., "Simplicity Prevails:
Rethinking Negative Preference Optimization for LLM Unlearning" (2024); the defaults are the authors' for forget10. Their
values for forget05 are beta 2.5 and gamma 0.1375. In their configuration delta is called gamma, and gamma npo_coeff.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.config.fields import Real
from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Positive, StepRows, Weight, preference

if TYPE_CHECKING:
    import torch


class Params(MethodParams):
    """``beta``, the margin ``delta`` inside the sigmoid, and the weights of both terms."""

    beta: Positive = 4.5
    delta: Real = 0.0
    gamma: Weight = 0.125
    retain_weight: Weight = 1.0


class Method(protocol.Method[Params], params=Params):
    """F = -(2/beta) log sigmoid(beta (l - delta)), the mean over answers; R = NLL or KL."""

    def forget_loss(self, rows: StepRows) -> torch.Tensor:
        losses = -rows.forward.log_probs / rows.forward.tokens
        return preference(losses - self.params.delta, self.params.beta)
