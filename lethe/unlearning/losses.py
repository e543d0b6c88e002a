"""The parts that several unlearning losses share: reductions over answer tokens, and the preference loss.

Two published reductions use these parts. A token mean is one sum over the answer tokens of the batch, divided by their
number, so a long answer weighs more. A preference loss takes one number per row and then the mean over rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.models.encoding import IGNORED

if TYPE_CHECKING:
    import torch

    from lethe.models.forward import Forward


def answered(forward: Forward) -> torch.Tensor:
    """(B, T-1) whether a position predicts an answer token; prompt and padding are excluded."""
    return forward.labels != IGNORED


def token_mean(values: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """The mean of ``values`` (B, T-1) over the positions ``counted``; 0 with a gradient of 0 where no position counts.

    Other positions may hold any number, even infinity: they are never multiplied.
    """
    picked = values[counted]
    return picked.sum() / max(1, picked.numel())


def cross_entropy(target: torch.Tensor, forward: Forward) -> torch.Tensor:
    """(B, T-1) -sum_v q_v log softmax(z)_v of each position, for target logits whose softmax is q, without a gradient."""
    return -(target.detach().softmax(-1) * forward.logits.float().log_softmax(-1)).sum(-1)


def preference(margins: torch.Tensor, beta: float) -> torch.Tensor:
    """-(2/beta) log sigmoid(beta m), the mean over rows, for one margin m per row.

    The factor 2/beta is that of the NPO authors (Zhang et al., "Negative Preference Optimization", 2024); plain DPO has
    none. The logarithm comes from a stable routine, because the naive log sigmoid(x) of an x of minus some hundreds is
    minus infinity in float32.
    """
    from torch.nn.functional import logsigmoid

    return -(2 / beta) * logsigmoid(beta * margins).mean()


def weighted_ascent(weights: torch.Tensor, forward: Forward) -> torch.Tensor:
    """Minus the token mean of w NLL; the weights (B, T-1) carry no gradient."""
    return token_mean(weights.detach() * forward.token_log_probs, answered(forward))
