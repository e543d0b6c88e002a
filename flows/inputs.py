"""The files and folders that params.yaml names: each is there, or a stage makes it, before any stage starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from stages.errors import BadParam
from stages.params import Params

MODELS = Path("data/models")


def check(params: Params, root: Path) -> None:
    """Raises `BadParam` for the first path that is nowhere; ``root`` is the folder that paths start from."""
    made = {str(MODELS / name) for name in (*params.train.models, *params.unlearn.methods)}
    for key, path, from_stage in _paths(params):
        if (root / path).exists() or (from_stage and os.path.normpath(path) in made):
            continue
        legal = "a path that exists"
        if from_stage:
            legal += f", or a model that a stage makes ({', '.join(sorted(made))})"
        raise BadParam(key, path, legal)


def _paths(params: Params) -> Iterator[tuple[str, str, bool]]:
    """Key, path, and whether the path may be a model that the pipeline makes first."""
    yield "data.source", params.data.source, False
    yield "train.recipe.prompt", params.train.recipe.prompt, False
    if params.train.recipe.start_from:  # not made by a stage: the stage `train` waits for none
        yield "train.recipe.start_from", params.train.recipe.start_from, False
    if params.unlearn.methods:
        yield "unlearn.recipe.start_from", params.unlearn.recipe.start_from, True
    yield "sample.prompt", params.sample.prompt, False
    for name, model in params.models.items():
        yield f"models.{name}.path", model.path, True
    for name, audit in params.audits.items():
        yield f"audits.{name}.source", audit.source, False
    for name, game in params.games.items():
        if game.kind == "text":
            yield f"games.{name}.learning.prompt", game.learning.prompt, False
