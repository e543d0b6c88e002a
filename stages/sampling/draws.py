"""From logits to tokens: cuts of the next-token distribution, and exact draws from it by inverse transform.

A sample's draws come from its own row of a table of random numbers, so they depend neither on the rows beside
it nor on how many samples share a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

# Draws are compared as whole multiples of 2**-40: exact whatever the row, and far finer than float32 logits.
BITS = 40


def random_table(stream: np.random.SeedSequence, samples: int, steps: int) -> np.ndarray:
    """Uniform draws in [0, 2**BITS), one row a sample, one column a step."""
    return np.random.Generator(np.random.PCG64(stream)).integers(0, 1 << BITS, size=(samples, steps))


def cut_weights(logits: torch.Tensor, temperature: float, top_k: int, top_p: float) -> torch.Tensor:
    """Unnormalised next-token probabilities after temperature, then top-k, then top-p; 0 for what is cut.

    ``logits``: (rows, vocabulary), float32. top-k keeps tokens tied with the k-th; top-p keeps the fewest most
    likely tokens whose share of what top-k left reaches ``top_p``.
    """
    weights = logits - logits.amax(-1, keepdim=True)
    if temperature != 1:
        weights /= temperature
    weights = weights.exp_()
    if 0 < top_k < weights.shape[-1]:
        weights *= logits >= logits.topk(top_k).values[:, -1:]
    if top_p < 1:
        ordered, order = weights.sort(dim=-1, descending=True)
        mass = ordered.double().cumsum(-1)
        before = mass - ordered
        kept = before < top_p * mass[:, -1:]
        weights *= kept.new_empty(kept.shape).scatter_(1, order, kept)
    return weights


def draw(weights: torch.Tensor, rows: torch.Tensor, table_column: torch.Tensor) -> torch.Tensor:
    """Each sample's token: the first at which its row's cumulated share exceeds its draw.

    ``weights``: (rows, vocabulary); ``rows`` and ``table_column``: (samples,), the row that a sample follows
    and its draw from `random_table`. Returns (samples,) tokens; a token of weight 0 is never drawn.
    """
    import torch

    count, vocabulary = weights.shape
    mass = weights.cumsum(-1, dtype=torch.float64)
    scale = 2.0**BITS / mass[:, -1:]
    # One search for all samples of all rows: row r's shares lie in [r, r + 1] of a single ascending list.
    floors = torch.arange(count, device=weights.device) << BITS
    shares = mass.mul_(scale).long().add_(floors[:, None]).view(-1)
    return torch.searchsorted(shares, table_column + floors[rows], right=True) - rows * vocabulary
