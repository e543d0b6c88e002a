"""Ends a training run whose loss or weights are no longer finite numbers: no stage could measure its model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from lethe.errors import LetheError

if TYPE_CHECKING:
    import torch


class Taken(NamedTuple):
    """A step, counted from 0 as in training.json, and its loss."""

    step: int
    loss: float


class TrainingFailed(LetheError):
    """A step has a loss that is not finite, or leaves weights that are not."""

    def __init__(self, run: str, steps: int, lr: float, failed: Taken, last: Taken | None):
        """``failed`` is the step that ended the run, ``last`` the last step with a finite loss, if there is one."""
        self.run, self.steps, self.failed, self.last = run, steps, failed, last
        if failed == last:
            problem = f"weights of {run} are not finite after step {failed.step}"
        else:
            problem = f"loss of {run} is {failed.loss} at step {failed.step}"
        before = f"the last finite loss is {last.loss:.6g}, at step {last.step}" if last else "no loss was finite"
        remedy = f"Set a smaller lr (it is {lr:g}), or a smaller clip where the settings have one."
        if last is None:
            remedy = "Check the model that training starts from, and the loss: no step changed the weights before."
        super().__init__(f"The {problem} (of steps 0 to {steps - 1}); {before}. The model is not kept. {remedy}")


class Losses:
    """The losses of one training run, of which the first that is not finite ends the run.

    Every process of a team sees the same losses and weights, so all of them stop at the same step.
    """

    def __init__(self, run: str, steps: int, lr: float, last: Taken | None = None):
        """``run`` is the label of the run, ``last`` the last step before a resumed run goes on."""
        self.run, self.steps, self.lr, self.last = run, steps, lr, last

    def add(self, step: int, loss: float) -> None:
        """Note the loss of a step; call it before the step changes the weights, where that costs nothing."""
        if not math.isfinite(loss):
            raise TrainingFailed(self.run, self.steps, self.lr, Taken(step, loss), self.last)
        self.last = Taken(step, loss)

    def check(self, weights: Iterable[torch.Tensor]) -> None:
        """Check the weights after the last noted step: a finite loss can have a gradient that is not finite."""
        import torch

        finite = torch.stack([one.detach().isfinite().all() for one in weights])
        if not bool(finite.all()):
            failed = self.last or Taken(0, math.nan)  # no step had rows
            raise TrainingFailed(self.run, self.steps, self.lr, failed, self.last)
