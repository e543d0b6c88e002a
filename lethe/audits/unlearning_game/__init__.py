"""The games: one module NAME_game.py per kind, which ``games.NAME.kind`` of params.yaml names.

A module has

- ``Params``: the model of the entry, derived from `lethe.config.schema.GameParams`,
- ``play(settings, scratch=None, run=None) -> AuditResult``: ``scratch`` is the folder of finished models, ``run`` the
  function that runs calls; both have a default.
"""
