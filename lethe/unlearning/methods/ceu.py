"""Cross-entropy unlearning (CE-U): the model's own distribution without the true token is the target.

The target q is the softmax of the model's own detached logits with the true token's logit at minus infinity. The gradient
at a position is p at the true token and -p q elsewhere: bounded, and zero in the limit p -> 0. A step whose answers have no
token left after the first ones has the loss 0 and the gradient 0. Source: Yang, "CE-U: Cross Entropy Unlearning" (2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lethe.config.fields import Integer
from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Rows, answered, cross_entropy, token_mean

if TYPE_CHECKING:
    import torch


class Params(MethodParams):
    """The number of answer tokens that each row's loss leaves out, from the first."""

    ignore_first_n_answer_tokens: Annotated[Integer, Field(ge=0)] = 1


class Method(protocol.Method[Params], params=Params):
    """F = cross-entropy to the model's own distribution without the true token, the token mean; no retain term."""

    forget_mean = "tokens"

    def forget_share(self, rows: Rows) -> float:
        left_out = self.params.ignore_first_n_answer_tokens
        return rows.counts.total("tokens", left_out) / max(1, rows.whole.total("tokens", left_out))

    def forget_loss(self, rows: Rows) -> torch.Tensor:
        forward, on_answer = rows.forward, answered(rows.forward)
        counted = on_answer & (on_answer.cumsum(-1) > self.params.ignore_first_n_answer_tokens)
        places = forward.labels.masked_fill(~on_answer, 0)[..., None]
        target = forward.logits.detach().float().scatter(-1, places, float("-inf"))
        return token_mean(cross_entropy(target, forward), counted)
