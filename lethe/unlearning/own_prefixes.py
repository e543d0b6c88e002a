"""A model's own continuations of the forget questions, on whose positions the forget entropy may be taken.

Entropy optimisation as published takes the entropy at the positions of the true answer, each given the true earlier tokens.
Sampling follows the tokens that the model itself wrote, so a position that sampling reaches may never have been optimised.
A continuation is greedy, or drawn at temperature 1, from the weights of the current step. The gradient is that of the entropy
given the continuation: the part through the choice of the tokens is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lethe.models.encoding import Example
from lethe.unlearning.watching import evaluating

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def continued(
    model: PreTrainedModel, examples: Sequence[Example], longest: int, end: int, uniforms: np.ndarray | None
) -> list[Example]:
    """The examples with the model's own continuation instead of the answer."""
    import torch

    width, rows = max(len(one.prompt) for one in examples), len(examples)
    ids = torch.zeros((rows, width), dtype=torch.long, device=model.device)  # masked left of the prompt
    mask = torch.zeros((rows, width + longest), dtype=torch.long, device=model.device)
    for row, one in enumerate(examples):
        ids[row, width - len(one.prompt) :] = torch.tensor(one.prompt)
        mask[row, width - len(one.prompt) :] = 1
    places = (mask.cumsum(-1) - 1).clamp_min(0)
    written: list[list[int]] = [[] for _ in examples]
    cache = None
    with evaluating(model):
        for number in range(longest):
            seen = width + number
            out = model(
                input_ids=ids,
                attention_mask=mask[:, :seen],
                position_ids=places[:, seen - ids.shape[1] : seen],
                past_key_values=cache,
                use_cache=True,
            )
            cache = out.past_key_values
            ids = chosen(out.logits[:, -1], None if uniforms is None else uniforms[:, number])[:, None]
            for tokens, token in zip(written, ids[:, 0].tolist(), strict=True):
                if tokens[-1:] != [end]:
                    tokens.append(token)
            if all(tokens[-1] == end for tokens in written):
                break
    return [Example(one.prompt, tuple(tokens)) for one, tokens in zip(examples, written, strict=True)]


def chosen(logits: torch.Tensor, uniforms: np.ndarray | None) -> torch.Tensor:
    """(rows,) the most likely token of each row, or the token that its number in [0, 1) draws."""
    import torch

    if uniforms is None:
        return logits.argmax(-1)
    upper = logits.double().softmax(-1).cumsum(-1)
    drawn = (
        torch.as_tensor(uniforms, device=logits.device)[:, None] * upper[:, -1:]
    )  # the sum may miss 1 by rounding
    return torch.searchsorted(upper, drawn, right=True)[:, 0].clamp_max(logits.shape[-1] - 1)
