"""The files and folders that params.yaml names: each is there and what it should be, or a stage makes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from stages.errors import BadInput, BadParam, ParamsClash
from stages.learning import models
from stages.learning.encoding import read_template
from stages.params import Params

MODELS = Path("data/models")


def check(params: Params, root: Path) -> None:
    """Before any stage starts: raises the `BadInput` that names the first key whose path is nowhere, or a file or folder
    of the wrong kind; ``root`` is the folder that paths start from.
    """
    made = {str(MODELS / name) for name in (*params.train.models, *params.unlearn.methods)}
    for key, path, from_stage in _paths(params):
        if (root / path).exists() or (from_stage and os.path.normpath(path) in made):
            continue
        legal = "a path that exists"
        if from_stage:
            legal += f", or a model that a stage makes ({', '.join(sorted(made))})"
        raise BadParam(key, path, legal)
    _check_prompts(params, root)
    _check_models(params, root, made)


def _check_prompts(params: Params, root: Path) -> None:
    texts = {f"games.{name}.learning": game.learning for name, game in params.games.items() if game.kind == "text"}
    for key, section in {"train.recipe": params.train.recipe, "sample": params.sample, **texts}.items():
        try:
            read_template(root / section.prompt)
        except BadInput as error:
            raise ParamsClash(f"{key}.prompt", str(error).rstrip(".")) from None


def _check_models(params: Params, root: Path, made: set[str]) -> None:
    """The models that no stage makes are whole: a mistake is told before hours of training."""
    places = {f"models.{name}.path": model.path for name, model in params.models.items()}
    places["train.recipe.start_from"] = params.train.recipe.start_from
    if params.unlearn.methods:
        places["unlearn.recipe.start_from"] = params.unlearn.recipe.start_from
    for key, path in places.items():
        if path is None or os.path.normpath(path) in made:
            continue
        try:
            models.check(root / path)
        except BadInput as error:
            raise ParamsClash(key, str(error).rstrip(".")) from None


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
