"""The parts that all losses share: log-probabilities and entropies on answer tokens, without prompt and padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lethe.models.encoding import IGNORED, Batch

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Forward:
    """One pass over a batch, with a gradient.

    ``logits`` (B, T-1, V) predict ``labels`` (B, T-1), which are IGNORED outside the answer; ``token_log_probs``
    (B, T-1) are 0 there; ``log_probs`` (B,) is S, the answer's summed log-probability; ``tokens`` (B,) counts its tokens.
    """

    logits: torch.Tensor
    labels: torch.Tensor
    token_log_probs: torch.Tensor
    log_probs: torch.Tensor
    tokens: torch.Tensor

    @property
    def nll(self) -> torch.Tensor:
        """The mean negative log-likelihood of the batch's answer tokens, a scalar."""
        return -self.log_probs.sum() / self.tokens.sum()

    @property
    def entropy(self) -> torch.Tensor:
        """The mean over rows of the mean next-token entropy on answer positions, in nats.

        Source: Scholten, Günnemann and Schwinn, "A Probabilistic Perspective on Unlearning and Alignment for Large
        Language Models", section 5.
        """
        log_p = self.logits.float().log_softmax(-1)
        entropies = -(log_p.exp() * log_p).sum(-1) * (self.labels != IGNORED)
        return (entropies.sum(-1) / self.tokens).mean()


def forward(model: PreTrainedModel, batch: Batch) -> Forward:
    """Run ``model`` on ``batch``, with logits shifted against labels: position t predicts token t + 1."""
    return from_logits(model(input_ids=batch.ids, attention_mask=batch.mask).logits[:, :-1], batch)


def from_logits(logits: torch.Tensor, batch: Batch) -> Forward:
    """The pass with the given logits (B, T-1, V)."""
    labels = batch.labels[:, 1:]
    on_answer = labels != IGNORED
    indices = labels.masked_fill(~on_answer, 0)  # IGNORED is not an index into the vocabulary
    picked = logits.float().log_softmax(-1).gather(-1, indices[..., None])[..., 0]
    token_log_probs = picked * on_answer
    return Forward(logits, labels, token_log_probs, token_log_probs.sum(-1), on_answer.sum(-1))
