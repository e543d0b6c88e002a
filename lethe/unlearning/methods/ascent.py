"""Gradient ascent on the forget set: plain, beside a retain term, and weighted by the probability of each token.

- ``grad_ascent``: minus the NLL alone; ``grad_diff``: with the NLL of the retain set; ``kl``: with the token mean of
  KL(reference || model) on it, where the reference is the model before unlearning. Source: Maini et al., "TOFU" (2024),
  which compares them as baselines.
- ``wga``: each token weighs p^beta, its own probability. Source: Wang et al., "Rethinking LLM Unlearning Objectives: A
  Gradient Perspective and Go Beyond" (2025).
- ``satimp``: each token weighs p^beta1 (1 - p)^beta2. The defaults are Open-Unlearning's; the authors use beta1 5, beta2
  0.1, gamma 1 and retain_weight 0.1. Source: Yang et al., "Exploring Criteria of Loss Reweighting to Enhance LLM
  Unlearning" (2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lethe.unlearning.protocol import (
    Method,
    MethodParams,
    Positive,
    StepRows,
    Weight,
    weighted_ascent,
)

if TYPE_CHECKING:
    import torch


class GradDiffParams(MethodParams):
    """The weight of the retain term."""

    retain_weight: Weight


class KlParams(GradDiffParams):
    """The retain term is the KL divergence."""

    retain_loss: Literal["kl"] = "kl"


class WgaParams(MethodParams):
    """The power ``beta`` of the token's probability, and the weight of the retain term."""

    beta: Positive = 1.0
    retain_weight: Weight = 1.0


class SatImpParams(MethodParams):
    """The powers of p and of 1 - p in the weight of a token, and the weights of both terms."""

    beta1: Weight = 5.0
    beta2: Weight = 1.0
    gamma: Weight = 0.1
    retain_weight: Weight = 1.0


class GradAscent(Method[MethodParams]):
    """F = -NLL, the token mean."""

    forget_mean = "tokens"

    def forget_loss(self, rows: StepRows) -> torch.Tensor:
        return -rows.forward.nll


class GradDiff(GradAscent, params=GradDiffParams):
    """F = -NLL, the token mean, beside the NLL of the retain set."""


class Kl(GradAscent, params=KlParams):
    """F = -NLL, the token mean, beside KL(reference || model) on the retain set."""


class Wga(Method[WgaParams], params=WgaParams):
    """F = -p^beta NLL, the token mean, with p detached."""

    forget_mean = "tokens"

    def forget_loss(self, rows: StepRows) -> torch.Tensor:
        return weighted_ascent(
            (self.params.beta * rows.forward.token_log_probs).exp(), rows.forward
        )


class SatImp(Method[SatImpParams], params=SatImpParams):
    """F = -p^beta1 (1 - p)^beta2 NLL, the token mean, with both weights detached."""

    forget_mean = "tokens"

    def forget_loss(self, rows: StepRows) -> torch.Tensor:
        log_p = rows.forward.token_log_probs.detach()
        # 1 - p from expm1 keeps its digits where p is near 1.
        rest = (-log_p.expm1()).clamp_min(0)
        return weighted_ascent(
            (self.params.beta1 * log_p).exp() * rest**self.params.beta2, rows.forward
        )


MEMBERS = {"grad_ascent": GradAscent, "grad_diff": GradDiff, "kl": Kl, "wga": Wga, "satimp": SatImp}
