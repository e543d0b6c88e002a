"""Training towards second answers to the forget questions: refusals, or alternatives that the model wrote itself.

- ``idk_dpo``: preference of a refusal to the true answer, -(2/beta) log sigmoid(beta (r(refusal) - r(answer))), where
  r = S - S_ref is the gain of a summed log-probability over the model before unlearning. Refusal and answer may differ in
  length, and nothing is normalised. Each visit of a row draws a new refusal. Source: Zhang et al., "Negative Preference
  Optimization" (2024), whose factor 2/beta plain DPO lacks.
- ``altpo``: the same with plausible alternatives that the model before unlearning writes itself
  (`lethe.unlearning.second_answers`). Source: Mekala et al., "Alternate Preference Optimization for Unlearning Factual
  Knowledge in Large Language Models" (2024), with 5 alternatives per question, beta 0.1 and a retain weight of 1.
- ``idk_nll``: refusals by supervised training (the "preference optimisation" of TOFU). The loss is one token mean of the NLL
  over all answer tokens of the refusals and of the retain rows together, so the short refusals weigh less than in a sum of
  two means. There is no ascent and no weight. Source: Maini et al., "TOFU" (2024), and the code of Zhang et al. (2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.config.fields import Count
from lethe.unlearning.protocol import (
    Before,
    Method,
    MethodParams,
    Needs,
    P,
    Place,
    Positive,
    Rows,
    Step,
    Weight,
    preference,
)
from lethe.unlearning.second_answers import REFUSALS, alternatives

if TYPE_CHECKING:
    import torch

    from lethe.io.artifacts import Row

Refusals = Annotated[tuple[Place, ...], Field(min_length=1)]


class PreferenceParams(MethodParams):
    """``beta``, and the weight of the retain term."""

    beta: Positive = 0.1
    retain_weight: Weight = 1.0


class IdkDpoParams(PreferenceParams):
    refusals: Refusals = REFUSALS


class AltpoParams(PreferenceParams):
    """How alternatives are written; ``request`` to the model has {question} and optionally {answer}, null: the question."""

    alternatives: Count = 5
    request: Place | None = None
    temperature: Positive = 1.0
    max_new_tokens: Count = 64


class IdkNllParams(MethodParams):
    """The refusals. The terms have no separate weights, and the retain loss is the NLL."""

    refusals: Refusals = REFUSALS
    gamma: Annotated[Weight, Field(ge=1, le=1)] = 1.0
    retain_weight: Annotated[Weight, Field(ge=1, le=1)] = 1.0
    retain_loss: Literal["nll"] = "nll"


class _Preference(Method[P]):
    """F = -(2/beta) log sigmoid(beta (r(second answer) - r(answer))), the mean over rows; R = NLL or KL."""

    needs = Needs(reference_log_probs=True, second_answers=True)

    def forget_loss(self, rows: Rows) -> torch.Tensor:
        second, answer = (one.forward.log_probs - one.reference_log_probs for one in (rows.second, rows))
        assert isinstance(self.params, PreferenceParams)
        return preference(second - answer, self.params.beta)


class IdkDpo(_Preference[IdkDpoParams], params=IdkDpoParams):
    def second_answers(self, row: Row) -> Sequence[str]:
        return self.params.refusals


class Altpo(_Preference[AltpoParams], params=AltpoParams):
    def all_second_answers(self, rows: Sequence[Row], before: Before) -> list[Sequence[str]]:
        own = self.params
        return alternatives(
            before, rows, own.alternatives, own.temperature, own.max_new_tokens, own.request, seed=before.seed
        )


class IdkNll(Method[IdkNllParams], params=IdkNllParams):
    """L = the token mean of the NLL over refusals and retain rows."""

    needs = Needs(second_answers=True)

    def second_answers(self, row: Row) -> Sequence[str]:
        return self.params.refusals

    def loss(self, step: Step) -> dict[str, torch.Tensor]:
        import torch

        assert step.retain is not None  # the weight of the retain rows is 1
        both = (step.forget.second, step.retain)
        log_probs, tokens = (
            torch.cat([getattr(rows.forward, key) for rows in both]).sum() for key in ("log_probs", "tokens")
        )
        part, whole = (sum(getattr(rows, key).total("tokens") for rows in both) for key in ("counts", "whole"))
        return {"loss": -log_probs / tokens * (part / whole)}


MEMBERS = {"idk_dpo": IdkDpo, "altpo": Altpo, "idk_nll": IdkNll}
