"""A pass over a batch whose last products are computed at the answers alone, with the bits of the whole pass.

Behind the last attention every position goes on by itself, and a loss on answers reads only the positions that predict a
token of an answer, a quarter of all. The products of a matrix with the others need not be computed: their gradients are 0.
Which bits a product over fewer rows has depends on the library: what is arranged here for MKL's branch of equal numbers is
tested on the library itself (tests/lethe/models/test_answer_pass.py). Elsewhere the last bits may differ from a whole pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from lethe.models.encoding import IGNORED, TokenBatch
from lethe.models.likelihood import Forward, forward

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# MKL's kernels take rows in groups, and round the rows that do not fill a group in another way. Of rows by this multiple,
# with the odd ones left at the end, each row keeps its bits.
ROWS_OF_A_KERNEL = 16
# MKL sums a product over its rows in chains of so many, and adds the chains: the first, the last, then those between.
ROWS_OF_A_CHAIN = 112
# In the edge of a matrix whose sizes are no multiples of this, the chains are others.
SIZE_OF_A_KERNEL = 4


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
    if not _is_known(model) or not on_answer.any():
        return forward(model, batch)

    rows = Rows.of(on_answer)
    last = model.model.layers[-1]
    behind_keys = (last.self_attn.q_proj, last.self_attn.o_proj)
    of_block = (*behind_keys, last.mlp.gate_proj, last.mlp.up_proj, last.mlp.down_proj)
    with _computed_at(rows, of_block):
        states = model.model(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state
    logits = Product.apply(states.flatten(0, 1), model.lm_head.weight, rows)[rows.answers]

    ids = labels[on_answer]
    picked = logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0]
    token_log_probs = _at_answers(picked, on_answer)
    return AnswerForward(
        logits, labels, token_log_probs, token_log_probs.sum(-1), on_answer.sum(-1)
    )


def _at_answers(values: torch.Tensor, on_answer: torch.Tensor) -> torch.Tensor:
    """(B, T-1) the values (answer tokens,) at the answers' positions, and 0 elsewhere."""
    return values.new_zeros(on_answer.shape).masked_scatter(on_answer, values)


def _is_known(model: PreTrainedModel) -> bool:
    """Whether the model is a Llama in float32 on a CPU, without what else reads or changes its products."""
    from transformers import LlamaForCausalLM

    if type(model) is not LlamaForCausalLM or model.is_gradient_checkpointing:
        return False
    last = model.model.layers[-1]
    plain = True
    for module in (*last.self_attn.children(), *last.mlp.children(), model.lm_head):
        if isinstance(module, torch.nn.Linear):
            plain &= type(module) is torch.nn.Linear and module.bias is None
            plain &= not module._forward_hooks and not module._forward_pre_hooks
            plain &= not any(size % SIZE_OF_A_KERNEL for size in module.weight.shape)
    numbers = model.lm_head.weight
    on_cpu = numbers.device.type == "cpu" and numbers.dtype == torch.float32
    return plain and on_cpu and not torch.is_autocast_enabled("cpu")


@dataclass(frozen=True)
class Rows:
    """The positions of a batch, its rows one after the other, at which products are computed.

    Attributes
    ----------
    places
        (rows,) the positions, rising.
    answers
        (answer tokens,) which of the rows predict a token of an answer; the others keep these rows' bits.
    chains
        The slices of the rows whose sums are added, in this order.
    """

    places: torch.Tensor
    answers: torch.Tensor
    chains: tuple[slice, ...]

    @classmethod
    def of(cls, on_answer: torch.Tensor) -> Rows:
        """The rows of a batch of which the positions (B, T-1) predict a token of an answer."""
        predicts = torch.nn.functional.pad(
            on_answer, (0, 1)
        ).flatten()  # the last token of a row predicts none
        positions = len(predicts)
        odd = positions % ROWS_OF_A_KERNEL
        chosen = predicts.clone()
        chosen[positions - odd :] = True
        lacking = (odd - int(chosen.sum())) % ROWS_OF_A_KERNEL
        chosen[(~chosen).nonzero()[:lacking, 0]] = True
        places = chosen.nonzero()[:, 0]

        # Also a chain without rows has its turn.
        of_positions = torch.arange(positions) // ROWS_OF_A_CHAIN
        counts = torch.bincount(of_positions, weights=chosen)
        chains = []
        start = 0
        for count in counts.int().tolist():
            chains.append(slice(start, start + count))
            start += count
        in_order = [*chains[:1], *chains[1:][-1:], *chains[1:-1]]
        filled = tuple(chain for chain in in_order if chain.stop > chain.start)
        return cls(places, predicts[places].nonzero()[:, 0], filled)


class Product(torch.autograd.Function):
    """(rows, out) the products of some positions (positions, in) with a weight (out, in)."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, rows: Rows) -> torch.Tensor:
        picked = inputs[rows.places]
        ctx.save_for_backward(picked, weight)
        ctx.rows = rows
        ctx.positions = len(inputs)
        return picked @ weight.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        picked, weight = ctx.saved_tensors
        of_inputs = of_weight = None
        if ctx.needs_input_grad[0]:
            of_inputs = gradient.new_zeros(ctx.positions, weight.shape[1])
            of_inputs[ctx.rows.places] = gradient @ weight
        if ctx.needs_input_grad[1]:
            of_weight = summed(gradient, picked, ctx.rows.chains)
        return of_inputs, of_weight, None


def summed(gradient: torch.Tensor, picked: torch.Tensor, chains: tuple[slice, ...]) -> torch.Tensor:
    """(out, in) the products of (rows, out) with (rows, in), summed over the rows chain by chain."""
    first, *others = chains
    total = gradient[first].t() @ picked[first]
    for chain in others:
        total += gradient[chain].t() @ picked[chain]
    return total


@contextlib.contextmanager
def _computed_at(rows: Rows, modules: tuple[torch.nn.Linear, ...]) -> Iterator[None]:
    """Have linear modules compute some positions alone, and give 0 at the others."""
    for module in modules:
        module.forward = partial(_spread, module.weight, rows)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def _spread(weight: torch.Tensor, rows: Rows, inputs: torch.Tensor) -> torch.Tensor:
    """(B, T, out) the products of inputs (B, T, in) at some positions, and 0 at the others."""
    flat = inputs.flatten(0, -2)
    products = Product.apply(flat, weight, rows)
    spread = products.new_zeros(len(flat), len(weight)).index_copy(0, rows.places, products)
    return spread.unflatten(0, inputs.shape[:-1])
