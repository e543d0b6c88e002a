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
    """Uniform draws in [0, 2**BITS), shape (samples, steps).

    A table of more samples begins with the same rows, so a sample's draws depend on its number alone.
    """
    generator = np.random.Generator(np.random.PCG64(stream))
    return generator.integers(0, 1 << BITS, size=(samples, steps))


def weigh(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The next-token probabilities of rows of logits, after temperature and cuts.

    Parameters
    ----------
    logits
        (rows, vocabulary), of any floating type, in which everything is computed.
    temperature
        Above 0.
    top_k
        Keep the tokens whose logit is among the k largest, equal ones included; 0 cuts nothing.
    top_p
        Then keep the fewest of the likeliest tokens whose mass is at least this share; 1 cuts nothing.

    Returns
    -------
    tuple of torch.Tensor
        (rows,) each row's top probability at temperature 1 before any cut, and (rows, vocabulary in whole blocks of
        `BLOCK`) the unnormalised probabilities, 0 for a cut token.
    """
    import torch

    rows, vocabulary = logits.shape
    padded = logits.new_empty(rows, -(-vocabulary // BLOCK) * BLOCK)
    padded[:, vocabulary:] = 0

    # The weights are computed in place: a copy of (rows, vocabulary) may not fit.
    weights = padded[:, :vocabulary]
    largest = logits.amax(-1, keepdim=True)
    torch.sub(logits, largest, out=weights).exp_()
    top = 1 / weights.sum(-1)
    if temperature != 1:
        torch.sub(logits, largest, out=weights).div_(temperature).exp_()

    if 0 < top_k < vocabulary:
        least = logits.topk(top_k).values[:, -1:]
        weights *= logits >= least
    if top_p < 1:
        ordered, order = weights.sort(dim=-1, descending=True)
        mass = ordered.double().cumsum(-1)
        in_nucleus = mass - ordered < top_p * mass[:, -1:]  # by rank
        kept = in_nucleus.new_empty(in_nucleus.shape).scatter_(1, order, in_nucleus)
        weights *= kept
    return top, padded


def draw(weights: torch.Tensor, rows: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Each sample's token by inverse transform: the first at which its row's cumulated share exceeds its draw.

    A token of weight 0 is never drawn. Two searches, over blocks and within one, find the token: cumulating whole rows
    would cost most of the time.

    Parameters
    ----------
    weights
        (rows, vocabulary in whole blocks) unnormalised probabilities, as `weigh` gives them.
    rows
        (samples,) the row that each sample follows.
    draws
        (samples,) whole numbers in [0, 2**BITS).

    Returns
    -------
    torch.Tensor
        (samples,) the tokens.
    """
    blocks = weights.view(len(weights), -1, BLOCK)
    n_blocks = blocks.shape[1]
    shares = cumulated(blocks.sum(-1), 1 << BITS)
    block = first_above(shares, rows, draws)

    # Within its block a sample searches for the draw minus the mass of earlier blocks; most samples share a block.
    visited, visit = (rows * n_blocks + block).unique(return_inverse=True)
    row = visited // n_blocks
    column = visited % n_blocks
    below = shares[row, column - 1].where(column > 0, 0)
    mass = shares[row, column] - below
    within = cumulated(blocks[row, column], mass[:, None])
    return block * BLOCK + first_above(within, visit, draws - below[visit])


def cumulated(masses: torch.Tensor, whole: torch.Tensor | int) -> torch.Tensor:
    """Running sums along each row of (rows, columns) masses, as whole numbers that end at ``whole``.

    ``whole`` is one number, or (rows, 1) a number for each row, at most 2**BITS, which float64 holds exactly.
    """
    sums = masses.double().cumsum(-1)
    return (sums / sums[:, -1:] * whole).long()


def first_above(shares: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """For each value, the first column of its row of shares that exceeds it.

    All rows are searched as one sorted list, in which the shares of row r lie in [r, r + 1] * 2**BITS.

    Parameters
    ----------
    shares
        (rows, columns) whole numbers that rise along each row, up to 2**BITS.
    rows, values
        (values,) the row of each value, and the value, below the last share of its row.
    """
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
    """The logits (rows, vocabulary), with only the most likely token left in the rows where ``rows`` (rows,) is true."""
    likeliest = logits.argmax(-1, keepdim=True)
    forced = logits.new_full(logits.shape, float("-inf")).scatter_(1, likeliest, 0.0)
    return logits.where(~rows[:, None], forced)


class Law(Direct, Drawing):
    """The settings that change the probability of an answer.

    The law is that of the model's softmax in float64; engines draw in steps of 2**-40 or in float32.

    Attributes
    ----------
    end_ids
        The tokens with which an answer ends; else it ends with its ``max_new_tokens``-th token.
    adaptive_threshold
        Of the adaptive temperature; None: the temperature is fixed.
    """

    end_ids: tuple[int, ...]
    adaptive_threshold: Threshold | None = None

    def __init__(self, end_ids: tuple[int, ...], max_new_tokens: int, **values: object):
        super().__init__(end_ids=end_ids, max_new_tokens=max_new_tokens, **values)

    def probabilities(
        self, logits: np.ndarray, confidence: np.ndarray, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The next-token probabilities of rows in one step.

        Parameters
        ----------
        logits
            (rows, V).
        confidence
            (rows,) the sum of the top probabilities over the earlier steps.
        step
            The number of earlier steps.

        Returns
        -------
        tuple of numpy.ndarray
            (rows, V) the probabilities in float64, and (rows,) the confidence sums, this step included.

        Raises
        ------
        Diverged
            If the logits are not numbers.
        """
        import torch

        exact = torch.from_numpy(np.ascontiguousarray(logits)).double()
        top, weights = weigh(exact, self.temperature, self.top_k, self.top_p)
        check_numbers(top)
        chances = weights[:, : logits.shape[1]].numpy()
        chances /= chances.sum(axis=1, keepdims=True)

        confidence = confidence + top.numpy()
        if self.adaptive_threshold is not None:
            mean = confidence / (step + 1)
            forced = np.flatnonzero(mean > self.adaptive_threshold)
            likeliest = logits[forced].argmax(axis=1)
            chances[forced] = 0
            chances[forced, likeliest] = 1
        return chances, confidence
