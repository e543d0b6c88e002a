"""The law of answers, in float64: next-token probabilities after temperature and the cuts.

This is the law of the model's softmax. Engines draw from the law in steps of 2**-40 or in float32, so probabilities
below about 1e-12 say nothing about an engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe.config.evaluating import Drawing, Threshold
from lethe.config.fields import Direct
from lethe.sampling.adaptive_temperature import check_numbers
from lethe.sampling.draws import weigh


class Law(Direct, Drawing):
    """The sampling settings that change the probability of an answer.

    ``end_ids`` end an answer, and so does its ``max_new_tokens``-th token. ``adaptive_threshold`` in (0, 1] or None:
    see `lethe.sampling.adaptive_temperature`.
    """

    end_ids: tuple[int, ...]
    adaptive_threshold: Threshold | None = None

    def __init__(self, end_ids: tuple[int, ...], max_new_tokens: int, **values: Any):
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
