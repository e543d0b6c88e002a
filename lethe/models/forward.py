"""One pass of a model: log-probabilities and entropies on answer tokens, and the hidden states of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lethe.models.encoding import IGNORED, Batch

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from lethe.models.encoding import Batch


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
        return -self.log_probs.sum() / self.tokens.sum()

    @property
    def entropy(self) -> torch.Tensor:
        """The mean over rows of the mean next-token entropy on answer positions, in nats (Scholten, Günnemann and
        Schwinn, "A Probabilistic Perspective on Unlearning and Alignment for Large Language Models", section 5)."""
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


class _Reached(Exception):
    """The block has run, so the rest of the model need not run."""


def number_of_blocks(model: PreTrainedModel, batch: Batch | None = None) -> int:
    """The number of transformer blocks; without a list of blocks, the number of hidden states on ``batch`` counts."""
    layers = _blocks(model)
    if layers is not None:
        return len(layers)
    if batch is None:
        return int(model.config.get_text_config().num_hidden_layers)
    return len(_states(model, batch)) - 1


def block_output(model: PreTrainedModel, batch: Batch, block: int) -> torch.Tensor:
    """(B, T, D) output of one block at each token, with the residual. It comes from the block itself, since the last
    of transformers' hidden states is that of the final norm; without a list of blocks, from the model's states."""
    layers = _blocks(model)
    if layers is None:
        return _states(model, batch)[block + 1]  # entry 0 is the embedding
    outputs: list[torch.Tensor] = []

    def keep(_module: object, _given: object, output: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)
        raise _Reached

    hook = layers[block].register_forward_hook(keep)
    try:
        model(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False)
    except _Reached:
        pass
    finally:
        hook.remove()
    return outputs[0]


def _states(model: PreTrainedModel, batch: Batch) -> tuple[torch.Tensor, ...]:
    return model(input_ids=batch.ids, attention_mask=batch.mask, output_hidden_states=True).hidden_states


def _blocks(model: PreTrainedModel) -> torch.nn.ModuleList | None:
    """The model's first module list with as many entries as the configuration has blocks; None if there is none."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return None
    count = model.config.get_text_config().num_hidden_layers
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return next((one for one in lists if len(one) == count), None)
