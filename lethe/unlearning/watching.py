"""Confidence and entropy on the answers while a model unlearns: before the first step and after each epoch.

Source: Scholten, Günnemann and Schwinn, "A Probabilistic Perspective on Unlearning and Alignment for Large Language
Models", Figure 5b.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lethe.models.encoding import Example, collate
from lethe.models.forward import forward
from lethe.unlearning.protocol import answered

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SIZE = 32  # rows per pass


@contextlib.contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode without gradients; the model's mode is restored on exit."""
    import torch

    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


@dataclass(frozen=True)
class Watch:
    """Records the observations of some rows of each split.

    Each record has ``epoch`` (-1 before the first step) and per split the means over the rows of: the largest next-token
    probability (confidence), the next-token entropy in nats, and the probability of the true token, each a mean over the
    answer's positions.
    """

    splits: Mapping[str, Sequence[Example]]
    padding: int
    records: list[dict[str, float]] = field(default_factory=list)

    def __call__(self, model: PreTrainedModel, epoch: int) -> None:
        record: dict[str, float] = {"epoch": epoch}
        with evaluating(model):
            for split, examples in self.splits.items():
                for name, value in _observed(model, examples, self.padding).items():
                    record[f"{split}_{name}"] = value
        self.records.append(record)


def _observed(model: PreTrainedModel, examples: Sequence[Example], padding: int) -> dict[str, float]:
    sums = dict.fromkeys(("confidence", "entropy", "probability"), 0.0)
    for start in range(0, len(examples), SIZE):
        group = examples[start : start + SIZE]
        out = forward(model, collate(group, padding, model.device))
        counted = answered(out)
        log_p = out.logits.float().log_softmax(-1)
        of_tokens = {
            "confidence": log_p.amax(-1).exp(),
            "entropy": -(log_p.exp() * log_p).sum(-1),
            "probability": out.token_log_probs.exp(),
        }
        for name, values in of_tokens.items():
            sums[name] += float(((values * counted).sum(-1) / out.tokens).sum())
    return {name: value / len(examples) for name, value in sums.items()}
