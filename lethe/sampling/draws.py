"""From logits to tokens: cuts of the next-token distribution, exact draws by inverse transform, and the law of answers.

A sample's draws come from its own row of a table of random numbers, so they depend neither on other rows nor on the
number of samples that share a row.

Adaptive temperature: c_t is the mean over steps 1..t of the largest next-token probability at temperature 1, before any
cut. Where c_t exceeds the threshold, step t is greedy (Scholten, Günnemann & Schwinn, "A probabilistic perspective on
unlearning and alignment for large language models", ICLR 2025, section 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lethe.config.fields import Direct
from lethe.config.measuring import Drawing, Threshold
from lethe.models.agreement import Diverged

if TYPE_CHECKING:
    import torch

# Draws are compared as whole multiples of 2**-40: exact in any row, and far finer than float32 logits.
BITS = 40
BLOCK = 64  # tokens per block sum; cumulating block sums is faster than cumulating tokens


def random_table(stream: np.random.SeedSequence, samples: int, steps: int) -> np.ndarray:
    """Uniform draws in [0, 2**BITS), shape (samples, steps)."""
    return np.random.Generator(np.random.PCG64(stream)).integers(
        0, 1 << BITS, size=(samples, steps)
    )


def weigh(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows,) each row's top probability at temperature 1, and (rows, vocabulary in whole blocks) its unnormalised
    next-token probabilities after the cuts, 0 for a cut token."""
    import torch

    rows, vocabulary = logits.shape
    padded = logits.new_empty(rows, -(-vocabulary // BLOCK) * BLOCK)
    padded[:, vocabulary:] = 0
    weights = padded[:, :vocabulary]
    largest = logits.amax(-1, keepdim=True)
    top = 1 / torch.sub(logits, largest, out=weights).exp_().sum(-1)
    if temperature != 1:
        torch.sub(logits, largest, out=weights).div_(temperature).exp_()
    if 0 < top_k < vocabulary:
        weights *= logits >= logits.topk(top_k).values[:, -1:]
    if top_p < 1:
        ordered, order = weights.sort(dim=-1, descending=True)
        mass = ordered.double().cumsum(-1)
        in_nucleus = mass - ordered < top_p * mass[:, -1:]
        weights *= in_nucleus.new_empty(in_nucleus.shape).scatter_(1, order, in_nucleus)
    return top, padded


def draw(weights: torch.Tensor, rows: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Each sample's token: the first at which its row's cumulated share exceeds its draw, never one of weight 0."""
    blocks = weights.view(len(weights), -1, BLOCK)
    shares = cumulated(blocks.sum(-1), 1 << BITS)
    block = first_above(shares, rows, draws)
    # Within its block a sample searches for the draw minus the mass of earlier blocks; most samples share a block.
    visited, visit = (rows * blocks.shape[1] + block).unique(return_inverse=True)
    row = visited // blocks.shape[1]
    column = visited % blocks.shape[1]
    below = shares[row, column - 1].where(column > 0, 0)
    within = cumulated(blocks[row, column], (shares[row, column] - below)[:, None])
    return block * BLOCK + first_above(within, visit, draws - below[visit])


def cumulated(masses: torch.Tensor, whole: torch.Tensor | int) -> torch.Tensor:
    """Running sums along each row of (rows, columns) masses, as whole numbers that end at ``whole``."""
    sums = masses.double().cumsum(-1)
    return (sums / sums[:, -1:] * whole).long()


def first_above(shares: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """For each value, the first column of its row that exceeds it: row r's shares lie in [r, r + 1] * 2**BITS of one list."""
    import torch

    floors = torch.arange(len(shares), device=shares.device) << BITS
    places = torch.searchsorted(
        (shares + floors[:, None]).view(-1), values + floors[rows], right=True
    )
    return places - rows * shares.shape[1]


def top_probability(logits: torch.Tensor) -> torch.Tensor:
    """(rows,) the largest probability of each row at temperature 1, float32."""
    logits = logits.float()
    return (logits.amax(-1) - logits.logsumexp(-1)).exp()


def check_numbers(tops: torch.Tensor) -> torch.Tensor:
    """Return ``tops``; raises `Diverged` if the largest probabilities are not numbers."""
    if not tops.isfinite().all():
        raise Diverged
    return tops


def force_top(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Leave only the most likely token in the rows where ``rows`` (rows,) is true."""
    forced = logits.new_full(logits.shape, float("-inf")).scatter_(
        1, logits.argmax(-1, keepdim=True), 0.0
    )
    return logits.where(~rows[:, None], forced)


class Law(Direct, Drawing):
    """The settings that change the probability of an answer, which ends with one of ``end_ids`` or its
    ``max_new_tokens``-th token. The law is that of the model's softmax in float64; engines draw in steps of 2**-40 or
    in float32."""

    end_ids: tuple[int, ...]
    adaptive_threshold: Threshold | None = None

    def __init__(self, end_ids: tuple[int, ...], max_new_tokens: int, **values: object):
        super().__init__(end_ids=end_ids, max_new_tokens=max_new_tokens, **values)

    def probabilities(
        self, logits: np.ndarray, confidence: np.ndarray, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Next-token probabilities (rows, V), float64, and the rows' confidence sums (rows,), this step included."""
        import torch

        exact = torch.from_numpy(np.ascontiguousarray(logits)).double()
        top, weights = weigh(exact, self.temperature, self.top_k, self.top_p)
        check_numbers(top)
        chances = weights[:, : logits.shape[1]].numpy()
        chances /= chances.sum(axis=1, keepdims=True)
        confidence = confidence + top.numpy()
        if self.adaptive_threshold is not None:
            forced = np.flatnonzero(confidence / (step + 1) > self.adaptive_threshold)
            chances[forced] = 0
            chances[forced, logits[forced].argmax(axis=1)] = 1
        return chances, confidence
