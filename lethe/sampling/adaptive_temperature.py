"""Adaptive temperature: a sequence continues greedily while the model is confident.

c_t is the mean over steps 1..t, the current one included, of the largest next-token probability at
temperature 1, before any top-k or top-p. Where c_t exceeds the threshold, the temperature of that step is 0; otherwise
it is the configured one. c_t is computed at every step, so a sequence may unlock again (Scholten, Günnemann & Schwinn,
"A probabilistic perspective on unlearning and alignment for large language models", ICLR 2025, section 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.errors import LetheError

if TYPE_CHECKING:
    import torch


def top_probability(logits: torch.Tensor) -> torch.Tensor:
    """The largest probability of each row at temperature 1. ``logits``: (rows, vocabulary) -> (rows,), float32."""
    logits = logits.float()
    return (logits.amax(-1) - logits.logsumexp(-1)).exp()


class Diverged(LetheError):
    """The model's next-token probabilities are not numbers; ``name`` names the model in the message."""

    def __init__(self, name: str | None = None):
        whose = f"Model {name!r}: its" if name else "The model's"
        super().__init__(
            f"{whose} next-token probabilities are not numbers, so its training has diverged. Train the model again with a "
            "lower learning rate, or name another checkpoint."
        )


def check_numbers(tops: torch.Tensor) -> torch.Tensor:
    """Return ``tops``; raises `Diverged` if the largest probabilities are not numbers."""
    if not tops.isfinite().all():
        raise Diverged
    return tops


def force_top(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Leave only the most likely token in the rows where ``rows`` (rows,) is true."""
    forced = logits.new_full(logits.shape, float("-inf")).scatter_(1, logits.argmax(-1, keepdim=True), 0.0)
    return logits.where(~rows[:, None], forced)


class ConfidenceProcessor:
    """Logits processor of one `model.generate` call: records confidences and makes rows greedy.

    Row 0 is always greedy if ``greedy_row``; every row is greedy while its mean confidence exceeds ``threshold``.
    The processor must receive the raw logits, before any warper.
    """

    def __init__(self, threshold: float | None, greedy_row: bool):
        self.threshold, self.greedy_row = threshold, greedy_row
        self.confidences: list[torch.Tensor] = []  # one (rows,) tensor per step
        self._sum: torch.Tensor | float = 0.0

    def __call__(self, input_ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        import torch

        self.confidences.append(check_numbers(top_probability(logits)))
        self._sum = self._sum + self.confidences[-1]
        greedy = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        if self.threshold is not None:
            greedy = self._sum / len(self.confidences) > self.threshold
        if self.greedy_row:
            greedy[0] = True
        return force_top(logits, greedy) if greedy.any() else logits
