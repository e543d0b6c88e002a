"""Gradient difference (GradDiff): gradient ascent on the forget set, descent on the retain set.

Source: Maini et al., "TOFU" (2024), which compares it as a baseline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Rows, Weight

if TYPE_CHECKING:
    import torch


class Params(MethodParams):
    """The weight of the retain term."""

    retain_weight: Weight


class Method(protocol.Method[Params], params=Params):
    """F = -NLL and R = NLL, each per token."""

    forget_mean = "tokens"

    def forget_loss(self, rows: Rows) -> torch.Tensor:
        return -rows.forward.nll
