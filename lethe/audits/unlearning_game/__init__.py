"""The games: one module NAME_game.py per kind, which ``games.NAME.kind`` of params.yaml names.

A module has

- ``Params``: the model of the entry, derived from `lethe.config.schema.GameParams`,
- ``play(settings, scratch=None, run=None) -> AuditResult``: ``scratch`` is the folder of finished models, ``run`` the
  function that runs calls; both have a default.
"""

from typing import Annotated

from pydantic import Field

from lethe.config.fields import Alpha, Count, Integer, Real, Seed
from lethe.config.schema import GameParams


class RoundsParams(GameParams):
    """The keys of a game in rounds, on any kind of data."""

    portion: Annotated[Real, Field(gt=0, lt=1)]
    pairs: Count
    seeds: Count
    seed: Seed
    alpha: Alpha
    shadow_models: Annotated[Integer, Field(ge=4, multiple_of=2)]
    shared_retrain: bool
    random_splits: bool
    attacks: list[str]
