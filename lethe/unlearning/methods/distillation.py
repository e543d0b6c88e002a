"""Cross-entropy to adjusted logits, without a gradient: those of the model before unlearning, or the model's own.

- ``undial``: the target of a position is softmax(z_ref - beta onehot(y)), the model before unlearning with the true token's
  logit lowered. The minimum of F is the target's entropy, not 0. Published without a retain term. Source: Dong et al.,
  "UNDIAL: Self-Distillation with Adjusted Logits for Robust Unlearning in Large Language Models" (2024).
- ``ceu``: the target is the softmax of the model's own detached logits with the true token's logit at minus infinity. The
  gradient at a position is p at the true token and -p q elsewhere: bounded, and zero in the limit p -> 0. Each row's loss
  leaves out its first answer tokens; a step whose answers have no token left has the loss 0 and the gradient 0. Source:
  Yang, "CE-U: Cross Entropy Unlearning" (2025).

Only answer positions count, and no label of a prompt or of padding is an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lethe.config.fields import Integer
from lethe.unlearning import protocol

if TYPE_CHECKING:
    import torch


class UndialParams(protocol.MethodParams):
    """How far the true token's logit is lowered, and the weight of a retain term, which the paper has not."""

    beta: protocol.Positive = 10.0
    retain_weight: protocol.Weight = 0.0


class CeuParams(protocol.MethodParams):
    """How many first tokens of each answer have no loss."""

    ignore_first_n_answer_tokens: Annotated[Integer, Field(ge=0)] = 1


class Undial(protocol.Method[UndialParams], params=UndialParams):
    """F = the cross-entropy to softmax(z_ref - beta onehot(y)), the mean over tokens."""

    needs = protocol.Needs(reference_model=True)
    forget_mean = "tokens"

    def forget_loss(self, rows: protocol.StepRows) -> torch.Tensor:
        forward = rows.forward
        counted = protocol.answered(rows.forward)
        before = rows.reference.logits.float()
        places = forward.labels.masked_fill(~counted, 0)[..., None]
        lowered = before.scatter_add(-1, places, before.new_full(places.shape, -self.params.beta))
        return protocol.token_mean(protocol.cross_entropy(lowered, forward), counted)


class Ceu(protocol.Method[CeuParams], params=CeuParams):
    """F = the cross-entropy to the softmax of the model's own logits without the true token, the mean over tokens."""

    forget_mean = "tokens"

    def forget_share(self, rows: protocol.StepRows) -> float:
        left_out = self.params.ignore_first_n_answer_tokens
        return rows.counts.total("tokens", left_out) / max(1, rows.whole.total("tokens", left_out))

    def forget_loss(self, rows: protocol.StepRows) -> torch.Tensor:
        forward = rows.forward
        on_answer = protocol.answered(rows.forward)
        counted = on_answer & (on_answer.cumsum(-1) > self.params.ignore_first_n_answer_tokens)
        places = forward.labels.masked_fill(~on_answer, 0)[..., None]
        target = forward.logits.detach().float().scatter(-1, places, float("-inf"))
        return protocol.token_mean(protocol.cross_entropy(target, forward), counted)


MEMBERS = {"undial": Undial, "ceu": Ceu}
