"""Representation misdirection (RMU): hidden states of forget answers are steered to a fixed random direction.

F is the mean over rows of [the mean over answer tokens of the mean over d of (h_d - c u_d)^2], for the output h of block L
at the answer tokens themselves; R is the same of h - h_ref on retain rows. u has entries uniform on [0, 1), divided by
their norm, and stays fixed for the run. Blocks above L get no gradient. Source: Li et al., "The WMDP Benchmark" (2024), with
the mean over hidden entries of its code; the defaults are Open-Unlearning's. The right c and L depend on the model: c must
be well above the norms of h.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lethe.config.fields import Integer, Place
from lethe.errors import BadValue
from lethe.models.likelihood import number_of_blocks
from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Needs, Positive, StepRows, UnlearningRun, Weight

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

PUBLISHED_BLOCK = 7  # of the source; a model with fewer blocks is steered at its last block


class Params(MethodParams):
    """``steering_coeff`` c, the block L from 0, the trained parameters, and the weight of the retain term."""

    steering_coeff: Positive = 2.0
    # null: block 7, or the last block of a smaller model
    block: Annotated[Integer, Field(ge=0)] | None = None
    trained: Place | None = None  # a regular expression on parameter names; null: every parameter
    retain_weight: Weight = 1.0


class Method(protocol.Method[Params], params=Params):
    """F = |h - c u|^2 / D on forget answers, R = |h - h_ref|^2 / D on retain answers; row mean, then mean over rows."""

    needs = Needs(reference_model=True)
    retain_mean = "rows"
    direction: torch.Tensor

    def prepare(self, run: UnlearningRun) -> None:
        import torch

        width = run.model.config.get_text_config().hidden_size
        drawn = torch.from_numpy(run.generator.random(width)).float()
        self.direction = drawn / drawn.norm()
        blocks = number_of_blocks(run.model)
        if self.params.block is not None and self.params.block >= blocks:
            raise BadValue(
                "rmu's block", self.params.block, f"below {blocks}, the model's number of blocks"
            )
        if self.params.trained is not None:
            _train_only(run.model, self.params.trained)

    def forget_loss(self, rows: StepRows) -> torch.Tensor:
        states = rows.hidden(self._block(rows.blocks)).float()
        return _distance(states - self.params.steering_coeff * self.direction.to(states), rows)

    def retain_loss(self, rows: StepRows) -> torch.Tensor:
        block = self._block(rows.blocks)
        return _distance(rows.hidden(block).float() - rows.reference_hidden(block).float(), rows)

    def reference_block(self, model: PreTrainedModel) -> int:
        return self._block(number_of_blocks(model))

    def _block(self, blocks: int) -> int:
        if self.params.block is None:
            return min(PUBLISHED_BLOCK, blocks - 1)
        return self.params.block


def _distance(difference: torch.Tensor, rows: StepRows) -> torch.Tensor:
    squares = difference.square().mean(-1) * rows.on_answer
    return (squares.sum(-1) / rows.on_answer.sum(-1)).mean()


def _train_only(model: PreTrainedModel, pattern: str) -> None:
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    try:
        trained = {name for name in names if re.search(pattern, name)}
    except re.error as error:
        raise BadValue("rmu's trained", pattern, f"a regular expression ({error})") from None
    if not trained:
        raise BadValue(
            "rmu's trained", pattern, f"a part of a parameter's name, such as {names[0]}"
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trained)
