"""The schema of exact bounds: the extent of the enumeration and of the sampling, and the definition of a leak."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lethe.config.fields import Alpha, Count, NameIn, Positive, Real, Section, Seed, Weight
from lethe.registry import SCORERS

Chance = Annotated[Real, Field(gt=0, lt=1)]


class Exploring(Section):
    """How much of an answer tree is explored and sampled; `lethe.sampling.answer_tree.Effort` explains each."""

    rows: Count = 15_000
    guide: Weight = 16.0
    theta_rho: Positive = 0.5
    alpha: Alpha = 0.01
    target: Chance | None = None
    exact_only: bool = False
    queries: Annotated[tuple[Count, ...], Field(min_length=1)] = tuple(10**power for power in range(10))
    seed: Seed = 0


class Exact(Exploring):
    """The settings of exact bounds, with the defaults of Python and the command line; params.yaml writes every key.

    ``tau`` is the probability at which a question is proved to leak or bounded, ``ratio`` its factor against Retrain.
    ``above`` is the score above which an answer leaks, for a scorer that is not binary. ``memory`` (MiB) bounds the rows in
    flight.
    """

    tau: Chance = 0.01
    ratio: Annotated[Real, Field(ge=1)] = 10.0
    scorer: Annotated[str, NameIn((SCORERS,))] = "keyword_leak"
    above: Annotated[Real, Field(ge=0, lt=1)] = 0.5
    memory: Count = 1024


EXACT = Exact()
