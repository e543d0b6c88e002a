"""The kinds of audit: one module per kind, which ``audits.NAME.kind`` of params.yaml names.

A module has

- ``Params``: the model of the entry, derived from `lethe.config.schema.AuditParams`,
- ``audit(settings) -> AuditResult``, where ``settings`` is the entry, checked by ``Params``.

Each audit decides what to observe: a file of guesses, a training run that it starts, a model that
it queries.
"""
