"""A population of attacks: each is drawn from a recipe by the population's seed and its number, and by nothing else.

So attacks are independent draws from the recipe, a killed run continues with the same attacks, and an attack can be made
again from its number alone.
"""

from dataclasses import dataclass

import numpy as np

from lethe.attacks.protocol import Attack
from lethe.config.schema import AttackParams, AttackRecipe
from lethe.registry import MODEL_ATTACKS
from lethe.statistics.streams import stream

SEEDS = 1 << 32  # the seeds that every library's generator takes


@dataclass(frozen=True)
class DrawnAttack:
    """The attack ``number`` of a population, with the ``seed`` of its random choices."""

    number: int
    params: AttackParams
    seed: int

    @property
    def member(self) -> Attack:
        """The attack itself, which changes a model."""
        return MODEL_ATTACKS[self.params.kind](self.params)


def draw(recipe: AttackRecipe, seed: int, number: int) -> DrawnAttack:
    """Return the attack ``number`` of the population with this recipe and seed.

    A kind is drawn in proportion to its weight, then its parameters from its ranges.

    Parameters
    ----------
    recipe
        The kinds with their ranges; the order in which they are written changes nothing.
    seed
        That of the population, from 0 to 2^32 - 1.
    number
        That of the attack, at least 0.
    """
    rng = np.random.default_rng(stream(seed, "population", number))
    kinds = list(recipe.kinds)
    weights = np.array([recipe.kinds[kind].weight for kind in kinds])

    place = int(rng.choice(len(kinds), p=weights / weights.sum()))
    kind = kinds[place]
    drawn = recipe.kinds[kind].drawn(rng)
    params = MODEL_ATTACKS[kind].Params.model_validate({"kind": kind, **drawn})

    seed_of_attack = int(rng.integers(SEEDS))
    return DrawnAttack(number, params, seed_of_attack)
