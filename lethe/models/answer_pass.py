"""A pass over a batch, with a gradient, that reads the answers alone where the model is known to allow that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lethe.models.answer_rows import is_known, logits_at
from lethe.models.encoding import IGNORED, TokenBatch
from lethe.models.likelihood import Forward, forward

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class AnswerForward(Forward):
    """A pass that reads the answers alone: ``logits`` (answer tokens, V) predict the labels that are not IGNORED, in turn."""

    @property
    def entropy(self) -> torch.Tensor:
        log_p = self.logits.log_softmax(-1)
        of_answers = -(log_p.exp() * log_p).sum(-1)
        entropies = _at_answers(of_answers, self.labels != IGNORED)
        return (entropies.sum(-1) / self.tokens).mean()

    def entropy_at(self, counted: torch.Tensor) -> torch.Tensor:
        raise LookupError("a pass at the answers alone has no entropies elsewhere")


def answer_forward(model: PreTrainedModel, batch: TokenBatch) -> Forward:
    """The pass of ``model`` over ``batch``, at the answers alone where the model is known to allow that."""
    labels = batch.labels[:, 1:]
    on_answer = labels != IGNORED
    if not is_known(model) or not on_answer.any():
        return forward(model, batch)

    logits = logits_at(model, batch, on_answer)
    ids = labels[on_answer]
    picked = logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0]
    token_log_probs = _at_answers(picked, on_answer)
    return AnswerForward(
        logits, labels, token_log_probs, token_log_probs.sum(-1), on_answer.sum(-1)
    )


def _at_answers(values: torch.Tensor, on_answer: torch.Tensor) -> torch.Tensor:
    """(B, T-1) the values (answer tokens,) at the answers' positions, and 0 elsewhere."""
    return values.new_zeros(on_answer.shape).masked_scatter(on_answer, values)
