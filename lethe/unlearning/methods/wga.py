"""Weighted gradient ascent (WGA): gradient ascent that weighs each token by its own probability to the power beta.

Source: Wang et al., "Rethinking LLM Unlearning Objectives: A Gradient Perspective and Go Beyond" (2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Positive, Rows, Weight, weighted_ascent

if TYPE_CHECKING:
    import torch


class Params(MethodParams):
    """The power ``beta`` of the token's probability, and the weight of the retain term."""

    beta: Positive = 1.0
    retain_weight: Weight = 1.0


class Method(protocol.Method[Params], params=Params):
    """F = -p^beta NLL, the token mean, with p detached; R = NLL or KL."""

    forget_mean = "tokens"

    def forget_loss(self, rows: Rows) -> torch.Tensor:
        return weighted_ascent((self.params.beta * rows.forward.token_log_probs).exp(), rows.forward)
