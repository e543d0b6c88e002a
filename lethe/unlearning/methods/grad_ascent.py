"""Gradient ascent (GradAscent): minus the forget set's mean negative log-likelihood per token.

Source: Maini et al., "TOFU" (2024), which compares it as a baseline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Rows

if TYPE_CHECKING:
    import torch


class Params(MethodParams):
    """No parameters beyond those of every method."""


class Method(protocol.Method[Params], params=Params):
    """F = -NLL, per token; no retain term."""

    forget_mean = "tokens"

    def forget_loss(self, rows: Rows) -> torch.Tensor:
        return -rows.forward.nll
