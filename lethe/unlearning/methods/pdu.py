"""Primal-dual unlearning (PDU): flat logits on the forget set, with the retain loss held below a bound.

F is the token mean of (max z - mean z)^2 over the raw logits of the positions that predict answer tokens. The weight of
the retain term is a dual variable lambda: after a step, lambda <- max(0, lambda + dual_step_size (R - retain_loss_eps)).
L = gamma F + lambda (R - retain_loss_eps), where lambda carries no gradient. Source: Entesari et al., "Constrained Entropic
Unlearning: A Primal-Dual Framework for Large Language Models" (2025), published with a warm-up of 5 epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.config.fields import Integer
from lethe.unlearning import protocol
from lethe.unlearning.protocol import (
    Done,
    MethodParams,
    Positive,
    Step,
    StepRows,
    Weight,
    answered,
    token_mean,
)

if TYPE_CHECKING:
    import torch


class Params(MethodParams):
    """The bound on R, the dual step, when the step is taken, and lambda's first value ``retain_weight``."""

    retain_loss_eps: Weight  # somewhat above R before unlearning
    dual_step_size: Positive = 1.0
    dual_update: Literal["step", "epoch"] = "step"
    dual_warmup_epochs: Annotated[Integer, Field(ge=0)] = 0
    retain_weight: Weight = 1.0


class Method(protocol.Method[Params], params=Params):
    """F = (max z - mean z)^2, the token mean; R = NLL or KL, with the dual variable as its weight."""

    forget_mean = "tokens"

    def __init__(self, params: Params):
        super().__init__(params)
        self.dual = params.retain_weight

    @property
    def uses_retain(self) -> bool:
        """The dual step reads R, also while lambda is 0."""
        return True

    @property
    def retain_weight(self) -> float:
        return self.dual

    def forget_loss(self, rows: StepRows) -> torch.Tensor:
        logits = rows.forward.logits.float()
        return token_mean((logits.amax(-1) - logits.mean(-1)).square(), answered(rows.forward))

    def loss(self, step: Step) -> dict[str, torch.Tensor]:
        values = super().loss(step)
        assert step.retain is not None  # `uses_retain`
        bound = self.params.retain_loss_eps * step.retain.share(self.retain_mean)
        return {**values, "loss": values["loss"] - self.dual * bound}

    def after_step(self, step: Done, values: Mapping[str, float]) -> None:
        if self.params.dual_update == "step" and step.epoch >= self.params.dual_warmup_epochs:
            self._dual_step(values["retain_loss"])

    def after_epoch(self, epoch: int, retain: Iterable[StepRows]) -> None:
        if self.params.dual_update == "epoch" and epoch + 1 >= self.params.dual_warmup_epochs:
            losses = [float(self.retain_loss(rows).detach()) for rows in retain]
            self._dual_step(sum(losses) / len(losses))

    def _dual_step(self, retain_loss: float) -> None:
        excess = retain_loss - self.params.retain_loss_eps
        self.dual = max(0.0, self.dual + self.params.dual_step_size * excess)
