"""Refusals by supervised training (IdkNLL, the "preference optimisation" of TOFU).

The loss is one token mean of the NLL over all answer tokens of the refusals and of the retain rows together, so the short
refusals weigh less than in a sum of two means. Source: Maini et al., "TOFU" (2024), and the code of Zhang et al.,
"Negative Preference Optimization" (2024). There is no ascent and no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.config.fields import Place
from lethe.unlearning import protocol
from lethe.unlearning.protocol import MethodParams, Needs, Step, Weight
from lethe.unlearning.second_answers import REFUSALS

if TYPE_CHECKING:
    import torch

    from lethe.io.artifacts import Row


class Params(MethodParams):
    """The refusals. The terms have no separate weights, and the retain loss is the NLL."""

    refusals: Annotated[tuple[Place, ...], Field(min_length=1)] = REFUSALS
    gamma: Annotated[Weight, Field(ge=1, le=1)] = 1.0
    retain_weight: Annotated[Weight, Field(ge=1, le=1)] = 1.0
    retain_loss: Literal["nll"] = "nll"


class Method(protocol.Method[Params], params=Params):
    """L = the token mean of the NLL over refusals and retain rows."""

    needs = Needs(second_answers=True)

    def second_answers(self, row: Row) -> Sequence[str]:
        return self.params.refusals

    def loss(self, step: Step) -> dict[str, torch.Tensor]:
        import torch

        assert step.retain is not None  # the weight of the retain rows is 1
        parts = (step.forget.second.forward, step.retain.forward)
        log_probs, tokens = (
            torch.cat([getattr(one, key) for one in parts]).sum() for key in ("log_probs", "tokens")
        )
        both = (step.forget.second, step.retain)
        share = sum(rows.counts.total("tokens") for rows in both) / sum(
            rows.whole.total("tokens") for rows in both
        )
        return {"loss": -log_probs / tokens * share}
