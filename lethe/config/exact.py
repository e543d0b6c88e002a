"""The schema of exact bounds: the extent of the enumeration and of the sampling, and the definition of a leak."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lethe.config.fields import Alpha, Count, NameIn, Positive, Real, Section, Seed, Weight
from lethe.registry import SCORERS

Chance = Annotated[Real, Field(gt=0, lt=1)]


class Exact(Section):
    """The settings of the stage `exact`; `lethe.steps.exact.ExactSettings` explains each."""

    rows: Count
    guide: Weight
    theta_rho: Positive
    alpha: Alpha
    tau: Chance
    ratio: Annotated[Real, Field(ge=1)]
    target: Chance | None
    exact_only: bool
    scorer: Annotated[str, NameIn((SCORERS,))]
    above: Annotated[Real, Field(ge=0, lt=1)]
    queries: Annotated[list[Count], Field(min_length=1)]
    seed: Seed
    memory: Count
