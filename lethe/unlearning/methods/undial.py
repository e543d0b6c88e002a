"""Self-distillation from adjusted logits (UNDIAL): the model before unlearning, with the true token's logit lowered.

The target of a position is softmax(z_ref - beta onehot(y)), without a gradient. The minimum of F is the target's entropy,
not 0. Only answer positions count, and no label of a prompt or of padding is an index. Source: Dong et al., "UNDIAL:
Self-Distillation with Adjusted Logits for Robust Unlearning in Large Language Models" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.unlearning import protocol
from lethe.unlearning.protocol import (
    MethodParams,
    Needs,
    Positive,
    Rows,
    Weight,
    answered,
    cross_entropy,
    token_mean,
)

if TYPE_CHECKING:
    import torch


class Params(MethodParams):
    """The strength ``beta`` of the adjustment; published without a retain term."""

    beta: Positive = 10.0
    retain_weight: Weight = 0.0


class Method(protocol.Method[Params], params=Params):
    """F = cross-entropy to softmax(z_ref - beta onehot(y)), the token mean; R = NLL or KL."""

    needs = Needs(reference_model=True)
    forget_mean = "tokens"

    def forget_loss(self, rows: Rows) -> torch.Tensor:
        forward, counted = rows.forward, answered(rows.forward)
        before = rows.reference.logits.float()
        places = forward.labels.masked_fill(~counted, 0)[..., None]
        lowered = before.scatter_add(-1, places, before.new_full(places.shape, -self.params.beta))
        return token_mean(cross_entropy(lowered, forward), counted)
