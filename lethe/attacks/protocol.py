"""The protocol of attacks on a model: a module with a parameter model and a class that changes the weights.

An attack has a budget (steps, bits, relative noise, a share of weights). For each budget, the attack yields the attacked
model, and the stage queries this model with the forget questions. The stage never asks rows that the attack trains on.

An attack with `Ranges` can be drawn for a population (`lethe.attacks.population`): its parameters then hold a single budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from lethe.config.fields import WithParams
from lethe.config.schema import AttackParams, Ranges
from lethe.io.artifacts import Row
from lethe.models.encoding import Encoder

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["Attack", "AttackParams", "Knowledge", "Ranges"]

Attacked = Iterator[tuple[float, "PreTrainedModel"]]  # (budget, attacked model)
P = TypeVar("P", bound=AttackParams)


@dataclass(frozen=True)
class Knowledge:
    """What an attacker may use: the forget and retain rows, and how a row becomes tokens."""

    forget: Sequence[Row]
    retain: Sequence[Row]
    encoder: Encoder
    padding: int


class Attack(WithParams[P]):
    """An attack on a model; the stage creates one per seed, with the ``after`` of its entry, checked by ``Params``."""

    Params: ClassVar[type[AttackParams]] = AttackParams
    Ranges: ClassVar[type[Ranges] | None] = None  # None: no population draws this attack
    budget: ClassVar[str] = ""  # the unit of the budget, for the axis of a figure

    def learned(self, knowledge: Knowledge, seed: int) -> list[Row]:
        """Return the rows that the attack trains on; none by default."""
        return []

    def attacked(self, model: PreTrainedModel, knowledge: Knowledge, seed: int) -> Attacked:
        """Yield an attacked model for each budget; the attack may change the model, in evaluation mode, in
        place. ``knowledge`` is what the attacker may use, and ``seed`` that of all the attack's random choices."""
        raise NotImplementedError(f"{type(self).__module__} does not define attacked")


def linear_weights(model: PreTrainedModel) -> list[torch.Tensor]:
    """Return the weights of the linear layers inside the blocks, in order, without embeddings, norms and the last layer."""
    last = model.get_output_embeddings()
    inner = [module for module in model.modules() if is_inner(module, last)]
    return [cast("torch.Tensor", module.weight) for module in inner]


def is_inner(module: torch.nn.Module, last: torch.nn.Module) -> bool:
    """Whether a module is a linear layer other than the ``last`` one of its model."""
    import torch

    return isinstance(module, torch.nn.Linear) and module is not last


def changed(
    model: PreTrainedModel,
    budgets: Sequence[float],
    change: Callable[[torch.Tensor, float], torch.Tensor],
) -> Attacked:
    """Yield (budget, model) with the weights of every linear layer replaced; each budget starts from the same weights."""
    import torch

    weights = linear_weights(model)
    originals = [tensor.detach().clone() for tensor in weights]
    for budget in budgets:
        with torch.no_grad():
            for tensor, original in zip(weights, originals, strict=True):
                tensor.copy_(change(original, budget))
        yield budget, model.eval()
