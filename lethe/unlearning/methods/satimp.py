"""Saturation and importance (SatImp): gradient ascent that weighs each token by p^beta1 (1 - p)^beta2.

The default powers and weights are those of Open-Unlearning's configuration. The authors use beta1 5, beta2 0.1, gamma 1
and retain_weight 0.1. Source: Yang et al., "Exploring Criteria of Loss Reweighting to Enhance LLM Unlearning" (2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Rows, Weight, weighted_ascent

if TYPE_CHECKING:
    import torch


class Params(MethodParams):
    """The powers of p and of 1 - p, and the weights of both terms."""

    beta1: Weight = 5.0
    beta2: Weight = 1.0
    gamma: Weight = 0.1
    retain_weight: Weight = 1.0


class Method(protocol.Method[Params], params=Params):
    """F = -p^beta1 (1 - p)^beta2 NLL, the token mean, with both weights detached; R = NLL or KL."""

    forget_mean = "tokens"

    def forget_loss(self, rows: Rows) -> torch.Tensor:
        log_p = rows.forward.token_log_probs.detach()
        # 1 - p from expm1 keeps its digits where p is near 1.
        rest = (-log_p.expm1()).clamp_min(0)
        return weighted_ascent((self.params.beta1 * log_p).exp() * rest**self.params.beta2, rows.forward)
