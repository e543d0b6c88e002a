"""The law of answers, in float64: next-token probabilities after temperature and the cuts.

This is the law of the model's softmax. Engines draw from the law in steps of 2**-40 or in float32, so probabilities
below about 1e-12 say nothing about an engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.errors import BadValue
from lethe.sampling.adaptive_temperature import check_numbers
from lethe.sampling.draws import weigh


@dataclass(frozen=True)
class Law:
    """The sampling settings that change the probability of an answer.

    ``end_ids`` end an answer, and so does its ``max_new_tokens``-th token. ``adaptive_threshold`` in (0, 1] or None:
    see `lethe.sampling.adaptive_temperature`.
    """

    end_ids: tuple[int, ...]
    max_new_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    adaptive_threshold: float | None = None

    def __post_init__(self) -> None:
        threshold = self.adaptive_threshold
        for name, good, legal in [
            ("max_new_tokens", self.max_new_tokens >= 1, "a whole number of at least 1"),
            ("temperature", 0 < self.temperature < float("inf"), "a number above 0"),
            ("top_k", self.top_k >= 0, "a whole number of at least 0 (0: no cut)"),
            ("top_p", 0 < self.top_p <= 1, "a number in (0, 1]"),
            ("adaptive_threshold", threshold is None or 0 < threshold <= 1, "a number in (0, 1], or null"),
        ]:
            if not good:
                raise BadValue(name, getattr(self, name), legal)

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
