"""The model before unlearning: kept whole and frozen, or reduced to its values on the answers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lethe.models.encoding import IGNORED, Batch, Example, collate
from lethe.models.forward import block_output, forward
from lethe.unlearning.protocol import Counts, Method, Rows

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from lethe.config.schema import UnlearnRecipe


def reference_log_probs(
    model: PreTrainedModel, examples: Sequence[Example], size: int, padding: int
) -> torch.Tensor:
    """(N,) S_ref of each answer in nats, computed once, so the reference model need not stay loaded."""
    import torch

    with torch.no_grad():
        return torch.cat(
            [
                forward(model, collate(examples[start : start + size], padding, model.device)).log_probs
                for start in range(0, len(examples), size)
            ]
        )


class Reference:
    """The model before unlearning, reduced to the parts that a method and its retain loss use."""

    def __init__(self, model: PreTrainedModel, method: Method, recipe: UnlearnRecipe, padding: int):
        self.model, self.size, self.padding = model, recipe.forget_batch, padding
        self.scored = method.needs.reference_log_probs
        self.frozen: PreTrainedModel | None = None
        self.values: Values | None = None
        if method.needs.reference_model or (method.uses_retain and method.params.retain_loss == "kl"):
            if recipe.reference == "cached":
                self.values = Values(model, padding, method.reference_block(model))
            else:
                self.frozen = copy.deepcopy(model).eval().requires_grad_(False)

    def keep(self, examples: Sequence[Example]) -> None:
        """Keep the values of the examples, unless the frozen model itself stays loaded."""
        if self.values is not None:
            self.values.keep(examples, self.size)

    def log_probs(self, examples: Sequence[Example]) -> torch.Tensor | None:
        """(N,) S_ref of each answer, for a method that needs it."""
        return reference_log_probs(self.model, examples, self.size, self.padding) if self.scored else None

    def rows(
        self,
        examples: Sequence[Example],
        scores: torch.Tensor | None = None,
        second: Rows | None = None,
        whole: Counts | None = None,
    ) -> Rows:
        """The rows of a step, or of a part of a step whose counts are ``whole``."""
        return Rows(
            self.model,
            collate(examples, self.padding, self.model.device),
            reference_model=self.frozen,
            reference_log_probs=scores,
            second=second,
            whole=whole,
            values=self.values,
        )

    def all_rows(self, examples: Sequence[Example], size: int) -> Iterator[Rows]:
        """All rows in file order, in batches."""
        return (self.rows(examples[start : start + size]) for start in range(0, len(examples), size))


class Values:
    """Logits, or the states of one block, of the model before unlearning on the answers of known examples.

    The values take CPU memory for answer tokens x vocabulary (or hidden width) numbers in the model's number format.
    """

    def __init__(self, model: PreTrainedModel, padding: int, block: int | None):
        self.model, self.padding, self.block = model, padding, block
        self.kept: dict[tuple[int, ...], torch.Tensor] = {}  # the row's tokens -> (answer tokens, V or D)

    def keep(self, examples: Sequence[Example], size: int) -> None:
        """Run the model on the examples."""
        import torch

        for start in range(0, len(examples), size):
            group = examples[start : start + size]
            batch = collate(group, self.padding, self.model.device)
            with torch.no_grad():
                if self.block is None:
                    values = self.model(input_ids=batch.ids, attention_mask=batch.mask).logits[:, :-1]
                    on_answer = batch.labels[:, 1:] != IGNORED
                else:
                    values, on_answer = block_output(self.model, batch, self.block), batch.labels != IGNORED
            for example, own, places in zip(group, values, on_answer, strict=True):
                self.kept[example.prompt + example.answer] = own[places].cpu()

    def logits(self, batch: Batch) -> torch.Tensor:
        return self._spread(batch, batch.labels[:, 1:] != IGNORED)

    def states(self, batch: Batch, block: int) -> torch.Tensor:
        assert block == self.block
        return self._spread(batch, batch.labels != IGNORED)

    def _spread(self, batch: Batch, on_answer: torch.Tensor) -> torch.Tensor:
        import torch

        rows = [
            self.kept[tuple(ids[mask.bool()].tolist())] for ids, mask in zip(batch.ids, batch.mask, strict=True)
        ]
        spread = torch.zeros((*on_answer.shape, rows[0].shape[-1]), dtype=rows[0].dtype, device=batch.ids.device)
        for target, places, values in zip(spread, on_answer, rows, strict=True):
            target[places] = values.to(spread.device)
        return spread
