"""The kinds of dataset: one module per kind, named in ``data.kind`` of params.yaml.

A module has

- ``load(data, source) -> {split: rows}``, where ``data`` is the `lethe.config.schema.Data` of params.yaml and
  ``source`` the folder of the user's files; a row follows the contract of `lethe.data.rows`,
- ``Params``, if the kind has its own parameters: the pydantic model of ``data.KIND``, read as ``data.of_kind(Params)``,
- ``AIM = "refuse"``, if the forget set holds requests that a model should refuse rather than knowledge to forget: pages
  then say so,
- ``check(data)``, optionally: raises `ValueError` if keys of ``data`` contradict one another.

Splits: ``forget`` is required; ``retain`` is required where a model is trained or unlearned; ``world``,
``real_authors`` (utility) and ``heldout`` (never trained on) are optional.
"""
